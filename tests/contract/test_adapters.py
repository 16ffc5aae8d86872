"""LoRA adapters: the logits and tokens of merged weights, also for several adapters in one batch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models.peft_adapter import write_adapter, write_merged
from tests.support.models.tiny_checkpoint import write_checkpoint, write_safetensors
from webpte.builder import build_program
from webpte.checkpoints.adapters import read_adapters
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.safetensors_file import read_safetensors
from webpte.cli import main
from webpte.container import MappedFile, parse_program
from webpte.errors import FormatError, GraphError, InputError, UnsupportedError
from webpte.fusion import adapters
from webpte.llm import LLM
from webpte.llm.adapters import MODULES
from webpte.ops.weight_formats import format_named

TOLERANCE = 1e-5  # of the largest logit
TEXT = [int(token) for token in np.random.default_rng(5).integers(3, 96, 30)]
LAYERS = range(2)
ATTENTION = {
    f"model.layers.{n}.self_attn.{p}_proj": (64 if p in "qo" else 32, 64) for n in LAYERS for p in ("q", "k", "v", "o")
}
MLP = {
    f"model.layers.{n}.mlp.{p}_proj": (64, 128) if p == "down" else (128, 64)
    for n in LAYERS
    for p in ("gate", "up", "down")
}
QUERIES = {name: shape for name, shape in ATTENTION.items() if "q_proj" in name or "v_proj" in name}
DOWN = "model.layers.1.mlp.down_proj"
ADAPTERS = ("all", "scaled", "patterns", "one")


def build(checkpoint: Path, path: Path, **options: Any) -> Path:
    options = {"quantize": None, "max_context": 64, "max_tokens": 24, **options}
    return build_program(checkpoint, path, **options)


def logits(llm: LLM, **settings: Any) -> np.ndarray:
    talk = llm.sequence()
    talk.generate(tokens=TEXT, max_new_tokens=1, stop=[], **settings).result()
    return talk.logits([7, 8], every=True)


def tokens(llm: LLM, **settings: Any) -> list[int]:
    answer = llm.generate(tokens=TEXT, max_new_tokens=12, stop=[], **settings)
    answer.result()
    return answer.tokens


def difference(values: np.ndarray, expected: np.ndarray) -> float:
    return float(abs(values - expected).max() / abs(expected).max())


class Models:
    """A program, adapters of it, and what the program of merged weights computes."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "base"
        self.checkpoint.mkdir()
        write_checkpoint(self.checkpoint)
        self.folders = {name: folder / name for name in ADAPTERS}
        every = {**ATTENTION, **MLP}
        write_adapter(self.folders["all"], every, 1)
        write_adapter(self.folders["scaled"], QUERIES, 2, r=6, lora_alpha=5, use_rslora=True)
        fields = {"rank_pattern": {"down_proj": 3}, "alpha_pattern": {DOWN: 24}}
        ranks = {name: 3 for name in MLP if "down" in name}
        write_adapter(self.folders["patterns"], MLP, 3, ranks, **fields)
        write_adapter(self.folders["one"], {DOWN: (64, 128)}, 4, r=9, lora_alpha=9)
        self.scales = {
            "all": dict.fromkeys(every, 2.0),
            "scaled": dict.fromkeys(QUERIES, 5 / math.sqrt(6)),
            "patterns": {name: 8 / ranks.get(name, 4) for name in MLP} | {DOWN: 8.0},
            "one": {DOWN: 1.0},
        }
        self.path = build(self.checkpoint, folder / "base.pte")
        self.expected: dict[str | None, tuple[np.ndarray, list[int]]] = {}
        with LLM.load(self.path) as llm:
            self.expected[None] = logits(llm), tokens(llm)
        for name in ADAPTERS:
            merged = folder / f"merged-{name}"
            write_merged(self.checkpoint, self.folders[name], self.scales[name], merged)
            with LLM.load(build(merged, merged / "model.pte")) as llm:
                self.expected[name] = logits(llm), tokens(llm)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def llm(models):
    with LLM.load(models.path, adapters=models.folders) as llm:
        yield llm


def test_adapter_logits_equal_merged_weights(models, llm):
    assert llm.adapters == ADAPTERS
    for name in ADAPTERS:
        assert difference(logits(llm, adapter=name), models.expected[name][0]) <= TOLERANCE
        assert difference(models.expected[None][0], models.expected[name][0]) > 0.01


def test_rows_without_adapter_have_the_bits_of_the_program(models, llm):
    assert logits(llm).tobytes() == models.expected[None][0].tobytes()


def test_adapters_in_one_batch_give_what_each_gives_alone(models, llm):
    names = [*models.expected] * 2
    steps = llm.stats.steps
    prompts = [{"tokens": TEXT, "adapter": name} for name in names]
    answers = [*llm.generate_many(prompts, max_new_tokens=12, stop=[])]
    assert [answer.tokens for answer in answers] == [models.expected[name][1] for name in names]
    assert llm.stats.steps - steps < 5 * 12  # they were computed together
    assert [tokens(llm, adapter=name) for name in ADAPTERS] == [models.expected[name][1] for name in ADAPTERS]


def test_prefix_of_another_adapter_is_not_reused(models, llm):
    llm.reset_prefix_cache()

    def reused(name: str | None) -> int:
        answer = llm.generate(tokens=TEXT, max_new_tokens=2, stop=[], adapter=name)
        answer.result()
        assert answer.tokens == models.expected[name][1][:2]
        return answer.usage.reused_tokens

    assert [reused(name) for name in ("all", "one", None)] == [0, 0, 0]
    assert [reused(name) for name in ("all", "one", None)] == [len(TEXT) - 1] * 3


def test_conversation_changes_its_adapter(models, llm):
    talk = llm.sequence()
    for name in ("one", "all", None):
        answer = talk.generate(tokens=TEXT, max_new_tokens=12, stop=[], adapter=name)
        answer.result()
        assert answer.tokens == models.expected[name][1]
    talk.generate(tokens=TEXT, max_new_tokens=1, stop=[], adapter="one").result()
    assert difference(talk.fork().logits([7, 8], every=True), models.expected["one"][0]) <= TOLERANCE
    with pytest.raises(UnsupportedError) as caught:
        talk.snapshot("never")
    assert caught.value.code == "unsupported.snapshot_adapter"


def test_restored_conversation_has_no_adapter(models, llm, tmp_path):
    talk = llm.sequence()
    talk.generate(tokens=TEXT, max_new_tokens=1, stop=[]).result()
    expected = talk.fork().logits([7, 8], every=True)
    talk.snapshot(tmp_path / "talk.state")
    talk.generate(tokens=[5], max_new_tokens=1, stop=[], adapter="all").result()
    talk.restore(tmp_path / "talk.state")
    assert difference(talk.logits([7, 8], every=True), expected) <= TOLERANCE


@pytest.mark.parametrize("prefix", ["model.text_model.", "model.language_model.", "language_model.model."])
def test_adapter_of_larger_model_is_that_of_its_language_model(models, tmp_path, prefix):
    """Its patterns name modules as the larger model does."""
    folder = tmp_path / "adapter"
    shapes = {prefix + name.removeprefix("model."): shape for name, shape in MLP.items()}
    down = prefix + DOWN.removeprefix("model.")
    ranks = {name: 3 for name in shapes if "down" in name}
    write_adapter(folder, shapes, 3, ranks, rank_pattern={"down_proj": 3}, alpha_pattern={down: 24})
    with LLM.load(models.path, adapters={"patterns": folder}) as llm:
        assert difference(logits(llm, adapter="patterns"), models.expected["patterns"][0]) <= TOLERANCE


def test_adapter_of_quantized_program_equals_merged_float_weights(models, tmp_path):
    """Merged with the weights that the codes stand for."""
    path = build(models.checkpoint, tmp_path / "4w.pte", quantize="4w", embedding="none", lm_head="none")
    source = read_checkpoint(models.checkpoint)
    plain = tmp_path / "plain"
    write_merged(models.checkpoint, models.folders["all"], {}, plain)
    arrays = {name: tensor.read().copy() for name, tensor in read_safetensors(plain / "model.safetensors").items()}
    with MappedFile(path) as file:
        data = {name: span.view() for name, span in parse_program(file).named_data.items()}
        for name, weight in source.weights.sources.items():
            codes = data.get(f"{name.removesuffix('.weight')}.codes")
            if codes is not None:
                rows, columns = weight.shape
                scales = np.frombuffer(data[f"{name.removesuffix('.weight')}.scales"], "<f4").reshape(columns // 32, -1)
                stored = np.frombuffer(codes, np.uint8).reshape(rows, columns // 2)
                arrays[weight.stored_name][weight.rows()] = format_named("int4").numpy_weight(stored, scales, 32)
    write_safetensors(plain / "model.safetensors", arrays)
    write_merged(plain, models.folders["all"], models.scales["all"], tmp_path / "merged")
    with LLM.load(build(tmp_path / "merged", tmp_path / "merged.pte")) as merged:
        expected = logits(merged), tokens(merged)
    with LLM.load(path, adapters={"all": models.folders["all"]}) as llm:
        assert difference(logits(llm, adapter="all"), expected[0]) <= TOLERANCE
        assert tokens(llm, adapter="all") == expected[1]


def test_commands_use_the_first_adapter(models, tmp_path, capsys):
    lines = [{"tokens": TEXT}, {"tokens": TEXT, "adapter": "one"}, {"tokens": TEXT, "adapter": None}]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = [f"--adapter={name}={models.folders[name]}" for name in ("all", "one")]
    length = ("--max-new-tokens", "12", "--temperature", "0")
    assert main(["generate", str(models.path), *options, "--file", str(tmp_path / "prompts.jsonl"), *length]) == 0
    answers = sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda answer: answer["id"])
    assert [answer["tokens"] for answer in answers] == [
        models.expected[name][1][: len(answer["tokens"])]
        for name, answer in zip(("all", "one", None), answers, strict=True)
    ]
    with pytest.raises(SystemExit):
        main(["generate", str(models.path), "hi", "--adapter", "a:b=folder"])


# -- refused -----------------------------------------------------------------------------------------------------------


def refused(
    models: Models,
    folder: Path,
    kind: type[Exception] = UnsupportedError,
    *,
    shapes=None,
    argument: str | None = "adapters['style']",
    **config,
) -> str:
    """Return the code and message of the error for an adapter."""
    write_adapter(folder, QUERIES if shapes is None else shapes, 1, **config)
    with pytest.raises(kind) as caught:
        LLM.load(models.path, adapters={"style": folder})
    assert caught.value.argument == argument  # type: ignore[attr-defined]
    return f"{caught.value.code}: {caught.value}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("use_dora", True),
        ("bias", "all"),
        ("modules_to_save", ["lm_head"]),
        ("peft_type", "IA3"),
        ("init_lora_weights", "pissa"),
        ("new_kind_of_product", {"x": 1}),
    ],
)
def test_adapter_of_another_kind_is_refused(models, tmp_path, field, value):
    text = refused(models, tmp_path / "adapter", **{field: value})
    assert text.startswith("unsupported.adapter_kind: ") and field in text


def test_adapter_that_does_not_fit_is_refused(models, tmp_path):
    name = "model.layers.0.self_attn.q_proj"
    text = refused(models, tmp_path / "shape", InputError, shapes={name: (64, 80)})
    assert text.startswith("input.adapter_shape: ") and f"{name}: expected [4, 64] and [64, 4], got [4, 80]" in text
    assert "org/tiny" in text
    text = refused(models, tmp_path / "rank", InputError, rank_pattern={"q_proj": 5})
    assert "expected [5, 64] and [64, 5], got [4, 64] and [64, 4]" in text
    text = refused(models, tmp_path / "deep", InputError, shapes={"model.layers.2.self_attn.q_proj": (64, 64)})
    assert text.startswith("input.adapter_modules: ") and "model.layers.2.self_attn.q_proj" in text
    text = refused(models, tmp_path / "head", InputError, shapes={"lm_head": (96, 64)})
    assert text.startswith("input.adapter_modules: ") and "'lm_head'" in text
    text = refused(models, tmp_path / "huge", FormatError, r=1025)
    assert text.startswith("format.adapter_config: ") and "at most 1024" in text
    text = refused(models, tmp_path / "pattern", rank_pattern={".*(a+)+": 4})
    assert text.startswith("unsupported.adapter_pattern: ")


@pytest.mark.parametrize("module", ["mlp.experts.3.gate_proj", "block_sparse_moe.experts.0.w1", "mlp.experts"])
def test_adapter_of_experts_is_refused_by_name(models, tmp_path, module):
    shapes = {**QUERIES, f"model.layers.1.{module}": (64, 64)}
    text = refused(models, tmp_path / "experts", argument=None, shapes=shapes)
    assert text.startswith("unsupported.adapter_experts: ") and f"model.layers.1.{module}" in text


@pytest.mark.parametrize("part", ["A", "B"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_adapter_with_nonfinite_numbers_is_refused(models, tmp_path, part, value):
    folder = tmp_path / "adapter"
    write_adapter(folder, QUERIES, 1)
    change_tensors(folder, {f"base_model.model.model.layers.1.self_attn.v_proj.lora_{part}.weight": value})
    with pytest.raises(FormatError) as caught:
        LLM.load(models.path, adapters={"style": folder})
    assert caught.value.code == "format.adapter_values" and "layers.1.attention.wv" in str(caught.value)


def change_tensors(folder: Path, values: dict[str, float]) -> None:
    """Write one element of each of these tensors of an adapter."""
    path = folder / "adapter_model.safetensors"
    arrays = {name: tensor.read().copy() for name, tensor in read_safetensors(path).items()}
    for name, value in values.items():
        arrays[name][0, 0] = value
    write_safetensors(path, arrays)


def test_adapter_with_two_tensors_for_one_matrix_is_refused(models, tmp_path):
    name = "layers.0.self_attn.q_proj"
    shapes = {f"model.{name}": (64, 64), f"model.language_model.{name}": (64, 64)}
    text = refused(models, tmp_path / "adapter", argument=None, shapes=shapes)
    assert text.startswith("unsupported.adapter_tensors: ") and f"model.language_model.{name}" in text


def test_pattern_without_a_module_is_warned_of(models, tmp_path, caplog):
    write_adapter(tmp_path / "adapter", QUERIES, 1, alpha_pattern={"model.layers.0.self_attn.q": 3, "v_proj": 8})
    with LLM.load(models.path, adapters={"style": tmp_path / "adapter"}):
        pass
    assert [record.getMessage() for record in caplog.records if "alpha_pattern" in record.getMessage()] == [
        "adapters['style']: alpha_pattern names modules that the adapter does not have: 'model.layers.0.self_attn.q'"
    ]


def test_adapter_layers_that_the_program_lacks_are_refused(models, monkeypatch):
    monkeypatch.setitem(adapters.OPERANDS, "linear", ("input", "input"))  # no call has the weight of a layer
    with pytest.raises(GraphError) as caught:
        LLM.load(models.path, adapters={"one": models.folders["one"]})
    assert caught.value.code == "graph.adapter_layers" and "layers.1.feed_forward.w2" in str(caught.value)


def test_list_of_modules_with_experts_is_read(models):
    """Versions up to 0.2 list experts and tables, whose numbers are not those of a layer."""
    listed = {
        "layers.0.experts.0.w1": ["x", 64, 64, 0, 4, 0, 0, 1.0],
        "per_layer_embeddings": ["y", 9, 9, 0, 9, 0, 0, 1.0],
    }
    layer = {"layers.1.feed_forward.w2": [DOWN, 64, 128, 0, 64, 0, 0, 1.0]}
    layers = read_adapters({"one": models.folders["one"]}, json.dumps(listed | layer).encode(), "model.pte")
    assert {*layers["one"]} == {*layer}


def test_adapter_names_and_folders_are_checked(models, llm, tmp_path):
    with pytest.raises(InputError, match="Did you mean scaled"):
        llm.generate(tokens=TEXT, adapter="scale")
    with LLM.load(models.path) as plain, pytest.raises(InputError) as caught:
        plain.generate(tokens=TEXT, adapter="all")
    assert caught.value.code == "input.unknown_adapter"
    wrong: list[Any] = [{"a:b": tmp_path}, {"": tmp_path}, ["all"], {"a": 3}, {"a": tmp_path / "none"}]
    for folders in wrong:
        with pytest.raises(InputError, match="adapters"):
            LLM.load(models.path, adapters=folders)


def test_program_without_modules_is_refused(models, tmp_path):
    path = tmp_path / "base.pte"
    data = models.path.read_bytes()
    path.write_bytes(data.replace(MODULES.encode(), b"other" + MODULES.encode()[5:]))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        beside = models.path.with_name(f"base.{name}")
        if beside.exists():
            path.with_name(f"base.{name}").write_bytes(beside.read_bytes())
    with pytest.raises(UnsupportedError, match="webpte export") as caught:
        LLM.load(path, adapters=models.folders)
    assert caught.value.code == "unsupported.no_adapter_modules"


@pytest.mark.parametrize(
    "change", [{"layers.0.attention.wq": [1]}, {"layers.0.attention.wq": ["q", 9, 9, 8, 9, 0, 0, 1.0]}, 3]
)
def test_invalid_list_of_modules_is_refused(models, change):
    with pytest.raises(FormatError) as caught:
        read_adapters(models.folders, json.dumps(change).encode(), "model.pte")
    assert caught.value.code == "format.adapter_modules"
