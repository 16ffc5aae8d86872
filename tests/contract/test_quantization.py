"""Quantized exports against the same module in eager PyTorch, and what quantizing promises about its codes."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import webpte
from tests.support.harness.cases import assert_close
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_but
from tests.support.models import example_models, gguf_talker
from webpte.builder.options import LLMOptions
from webpte.builder.quantize import extremes
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.recipe import linear_recipe
from webpte.checkpoints.weights import CheckpointWeights
from webpte.cli import main
from webpte.export import ExportWarning, export_llm
from webpte.export.decoder_module import build_module, empty_module
from webpte.export.llm import quantize_module, quantized_module
from webpte.export.quantization.bit_allocation import measure_losses
from webpte.export.quantization.compensation import compensated, result_error
from webpte.export.quantization.grid import QuantizedWeight, exact, least_squares, nearest
from webpte.export.quantization.quantize import shapes_of
from webpte.llm import LLM


def drawn(rows: int, columns: int, seed: int) -> torch.Tensor:
    """Weights with outliers, a group of one sign, one of zeros and one that is almost nothing."""
    maker = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=maker) ** 3
    weight[0], weight[1, :8], weight[2, :8] = weight[0].abs(), 0.0, 1e-30
    return weight


def by_the_maximum(weight: torch.Tensor, group: int, bits: int) -> QuantizedWeight:
    low, high = extremes(bits)
    scales = weight.unflatten(1, (-1, group)).abs().amax(-1).clamp(min=1e-12) * 2 / (high - low)
    return QuantizedWeight(nearest(weight, scales, bits), scales)


def squares(weight: torch.Tensor, codes: QuantizedWeight) -> torch.Tensor:
    """Return the squared error of each group, (N, G)."""
    return ((weight - codes.values()) ** 2).unflatten(1, (-1, codes.group)).sum(-1)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [4, 8, 32])
def test_least_squares_scales_not_worse_than_maximum(bits, group):
    for seed in range(5):
        weight = drawn(12, 32, seed)
        fitted, plain = least_squares(weight, group, bits), by_the_maximum(weight, group, bits)
        assert torch.isfinite(fitted.scales).all() and (fitted.scales != 0).all()
        ours, theirs = squares(weight, fitted), squares(weight, plain)
        assert (ours <= theirs * (1 + 1e-5) + 1e-30).all()
        assert ours.sum() < theirs.sum() * (0.9 if bits == 4 else 1)


def by_many_clips(weight: torch.Tensor, group: int, bits: int) -> torch.Tensor:
    """Return the least squares of each group, (N, G), with the best of many clips and the scale that fits its codes."""
    grouped = weight.unflatten(1, (-1, group))
    largest, least = grouped.abs().amax(-1), torch.full(grouped.shape[:2], torch.inf)
    for clip in torch.linspace(-1.1, 1.1, 80):
        codes = (grouped / (largest * clip / 2 ** (bits - 1))[..., None]).round().clamp(*extremes(bits))
        scale = (codes * grouped).sum(-1) / (codes * codes).sum(-1)
        least = torch.minimum(least, ((grouped - codes * scale[..., None]) ** 2).sum(-1))
    return least


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 8), (8, 512)])
def test_least_squares_few_clips_near_many(bits, group):
    """Of groups that are laid out either way, in parts that threads share."""
    weight = torch.randn(300, 512, generator=torch.Generator().manual_seed(3))
    ours = squares(weight, least_squares(weight, group, bits)).sum()
    assert ours < 1.01 * by_many_clips(weight, group, bits).sum()


def test_least_squares_negative_scale_extends_positive_range():
    weight = torch.tensor([[8.0, 1.0, -1.0, 2.0]])
    fitted = least_squares(weight, 4, 4)
    assert fitted.scales[0, 0] < 0 and torch.equal(fitted.values(), weight)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [8, 16])
def test_compensation_lowers_the_error_of_results(bits, group):
    maker = torch.Generator().manual_seed(1)
    weight = drawn(24, 48, 0)
    inputs = torch.randn(300, 48, generator=maker) @ torch.randn(48, 48, generator=maker)
    inputs[:, 5] = 0.0  # an input that the text never uses
    moments = inputs.T @ inputs
    rounded = compensated(weight, group, bits, moments)
    again = compensated(weight, group, bits, moments)
    assert torch.equal(rounded.codes, again.codes) and torch.equal(rounded.scales, again.scales)
    plain = result_error(weight, least_squares(weight, group, bits), moments)
    assert result_error(weight, rounded, moments) < 0.7 * plain


def save_checkpoint(folder):
    """A small Llama with its tokenizer, in Hugging Face's form."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({chr(32 + i): i for i in range(96)}, unk_token="?"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({}))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    save_checkpoint(folder)
    return folder


EXPORTER = ["export/llm", "checkpoints/families/llama"]  # modules that write the program
RECIPES: dict[str, dict[str, Any]] = {
    "4w": {"quantize": "4w", "group_size": 16},
    "8w": {"quantize": "8w", "embedding": "4,32", "calibrate": False},
    "8da4w": {"quantize": "8da4w", "group_size": 8, "embedding": "none", "lm_head": "4"},
}
# 88 columns fit no group of 16: w2 is in 8 bits then. The embedding and the head are among those in 8 bits.
KINDS = {"4w": {"4w": 12, "8w": 4}, "8w": {"8w": 15, "4w": 1}, "8da4w": {"8da4w": 15}}


@pytest.mark.parametrize("name", slow_but(["8w"], RECIPES))  # test_evaluation.py has one with 4w
def test_export_quantized_logits_equal_module(checkpoint, name):
    """Also where rows of several sequences are computed at once, which tables of bytes and 8-bit layers allow."""
    options: dict[str, Any] = {"max_context": 256, "max_tokens": 128, **RECIPES[name]}  # calibrated in few calls
    module, report = quantized_module(read_checkpoint(checkpoint), LLMOptions(**options))
    kinds = Counter(layer.kind.name for layer in report.layers)
    assert kinds == KINDS[name] and report.bits_per_weight < 12
    tokens = [(7 * i + 3) % 96 for i in range(20)]

    def make(folder):
        export_llm(checkpoint, folder / "m.pte", **options, quality=False)

    made_of = inspect.getsource(save_checkpoint), json.dumps(options)
    written = example_models.cached(f"quantized-{name}", [], make, *made_of, exporter=EXPORTER) / "m.pte"
    assert LLMOptions(**options).weight_bytes(read_checkpoint(checkpoint)) < written.stat().st_size
    with torch.no_grad(), LLM.load(written) as llm:
        assert llm.batching_unsupported_reason is None
        talk, position = llm.sequence(), 0
        for count in (13, 1, 1, 5):
            piece = tokens[position : position + count]
            want = module(torch.tensor([piece]), {"input_pos": torch.tensor([position])}).reshape(-1).numpy()
            position += count
            assert_close(talk.logits(piece)[0], want, 1e-4 * np.abs(want).max(), 0, f"{name}, {position} tokens")


@pytest.mark.parametrize("group", [32, 8])
def test_values_of_a_quantized_gguf_are_kept_bit_for_bit(group):
    """Q4_0 is a step in f16 times -8 to 7, for groups of 32: 4w holds it, in groups that divide these."""
    import gguf

    weight = np.random.default_rng(0).standard_normal((12, 128)).astype(np.float32) ** 3
    weight[0, :32] = 0.0
    stored = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q4_0)
    values = torch.from_numpy(gguf.quants.dequantize(stored, gguf.GGMLQuantizationType.Q4_0))
    codes = exact(values, group, 4)
    assert codes is not None and codes.group == group
    assert torch.equal(codes.values(), values)
    asymmetric = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q4_1)
    others = torch.from_numpy(gguf.quants.dequantize(asymmetric, gguf.GGMLQuantizationType.Q4_1))
    assert exact(others, group, 4) is None and exact(torch.from_numpy(weight), group, 4) is None
    coarse = exact(values, 64, 4)  # two steps in a group
    assert coarse is None


def torchao_linear(weight: torch.Tensor, bits: int) -> torch.nn.Linear:
    """By torchao's own quantizer: 4 bits in groups of 32, or 8 bits with a scale a row."""
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    layers = torch.nn.Sequential(torch.nn.Linear(weight.shape[1], len(weight), bias=False))
    layers[0].weight.data = weight.clone()
    kind, scales = (torch.int4, PerGroup(32)) if bits == 4 else (torch.int8, PerAxis(0))
    quantize_(layers, IntxWeightOnlyConfig(weight_dtype=kind, granularity=scales))
    return layers[0]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e37])
def test_codes_and_scales_of_torchao_are_found_in_its_values_bit_for_bit(bits, size):
    weight = torch.randn((48, 128), generator=torch.Generator().manual_seed(0)) ** 3 / 100 * size
    weight[3] = -weight[3].abs()
    stored = torchao_linear(weight, bits).weight
    result = exact(stored.dequantize(), 32 if bits == 4 else 128, bits)
    assert result is not None
    assert torch.equal(result.codes, stored.qdata)
    assert torch.equal(result.scales, stored.scale.reshape(result.scales.shape))


@pytest.mark.parametrize("dense", [True, False])
def test_export_keeps_torchao_codes_and_scales(tmp_path, dense):
    """Of its own kind of tensor, and of ordinary weights that it made."""
    linear = torchao_linear(torch.randn((48, 128), generator=torch.Generator().manual_seed(1)), 4)
    codes, scales = linear.weight.qdata, linear.weight.scale
    if dense:
        linear.weight = torch.nn.Parameter(linear.weight.dequantize(), requires_grad=False)
    x = torch.randn((5, 128), generator=torch.Generator().manual_seed(2))
    webpte.export.lower(torch.nn.Sequential(linear), (x,), path=tmp_path / "linear.pte", quantize="4w", group_size=32)
    stored = (tmp_path / "linear.pte").read_bytes()
    assert scales.T.contiguous().numpy().tobytes() in stored
    pairs = (codes + 8).to(torch.uint8).numpy()
    packed = (pairs[:, 0::2] << 4 | pairs[:, 1::2], pairs[:, 1::2] << 4 | pairs[:, 0::2])  # either half may be first
    assert any(each.tobytes() in stored for each in packed)


@pytest.mark.parametrize("value", [1e37, float("inf"), float("nan")])
def test_weights_that_are_too_large_to_quantize_are_refused_by_name(tmp_path, value):
    linear = torch.nn.Linear(128, 48)
    with torch.no_grad():
        linear.weight[5, 7] = value
    with raises(webpte.UnsupportedError, "0.weight", "1e+10", f"{value:g}", code="weight_range") as caught:
        webpte.export.lower(
            torch.nn.Sequential(linear), (torch.zeros(1, 128),), path=tmp_path / "linear.pte", quantize="4w"
        )
    assert caught.value.items == ("0.weight",)
    assert not (tmp_path / "linear.pte").exists()


@pytest.mark.parametrize("calibrate", [False, True])
def test_weights_are_read_and_dropped_layer_by_layer(checkpoint, monkeypatch, calibrate):
    """Beside a layer, or a block that a text is read with, no float matrix stands but the embedding; values are those
    of a model that was read whole."""
    source = read_checkpoint(checkpoint)
    options = LLMOptions("4w", group_size=8, calibrate=calibrate, max_context=48, max_tokens=32)
    first = build_module(source, 48, 32)
    block = sum(weight.numel() for name, weight in first.named_parameters() if name.startswith("layers.0."))
    quantize_module(first, source, options)
    streamed = empty_module(source, 48, 32)
    read, standing = CheckpointWeights.read, []

    def noted(self, name):
        floats = [type(p) is torch.nn.Parameter and p.dim() == 2 and not p.is_meta for p in streamed.parameters()]
        standing.append(sum(p.numel() for p, is_float in zip(streamed.parameters(), floats, strict=True) if is_float))
        return read(self, name)

    monkeypatch.setattr(CheckpointWeights, "read", noted)
    quantize_module(streamed, source, options)
    assert len(standing) == len(source.weights.sources)  # each once
    assert max(standing) <= (96 * 64 + block if calibrate else 0)
    want, got = first.state_dict(), streamed.state_dict()
    assert list(want) == list(got) and all(torch.equal(codes_of(want[name]), codes_of(got[name])) for name in want)


def codes_of(tensor: torch.Tensor) -> torch.Tensor:
    return getattr(tensor, "qdata", tensor)


def test_bits_per_weight_raises_layers_with_largest_loss(checkpoint):
    """Layers of one input together, and no more than the budget."""
    source = read_checkpoint(checkpoint)
    options = LLMOptions(
        "auto", group_size=8, embedding="4,32", lm_head="4", bits_per_weight=8.1, max_context=48, max_tokens=32
    )
    _, report = quantized_module(source, options)
    eights = {layer.name for layer in report.layers if layer.kind.name == "8w"}
    assert eights and report.bits_per_weight <= 8.1
    joined = {"wq", "wk", "wv"}
    for number in range(2):  # layers of one input are of one kind
        assert len({f"layers.{number}.attention.{part}" in eights for part in joined}) == 1
    assert any(f"{len(eights)} of 15 layers have 8 bits" in line for line in report.notes)
    with raises(webpte.InputError, "bits_per_weight", 4.5):
        quantized_module(source, replace(options, bits_per_weight=4.5))


def test_bit_allocation_loss_equals_single_layer_change(checkpoint):
    module, _ = quantized_module(read_checkpoint(checkpoint), LLMOptions(max_context=48, max_tokens=32))
    recipe = linear_recipe(shapes_of(module), "4w", 8)
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    with torch.no_grad():
        module.layers[1].feed_forward.w2.weight.zero_()
        losses = measure_losses(module, recipe, [5, 9, 40, 33, 21, 60])
        assert losses[("layers.1.feed_forward.w2",)] == 0  # zeros have codes that are exact
        assert min(losses.values()) >= 0 and sum(loss > 1e-6 for loss in losses.values()) >= 6
        assert ("layers.0.attention.wq", "layers.0.attention.wk", "layers.0.attention.wv") in losses
    after = module.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before if "layers.1.feed_forward.w2" not in name)


@pytest.fixture
def lowered(monkeypatch):
    """What is lowered is not of interest: a file stands for it."""
    monkeypatch.setattr("webpte.export.llm._lower", lambda module, source, path, *rest: path.write_bytes(b"program"))
    monkeypatch.setattr("webpte.export.report.evaluation_text", lambda: "Some text. " * 4)


GGUF: dict[str, Any] = {"max_context": 48, "max_tokens": 16, "quantize": "4w", "calibrate": False, "embedding": "none"}


def test_export_requantized_weights_are_reported(tmp_path, recwarn, lowered):
    again = gguf_talker.write(tmp_path / "again.gguf", kind="Q4_1")
    with pytest.warns(ExportWarning, match=r"15 layers .*Q4_1 .*4w .* 32") as messages:
        export_llm(again, tmp_path / "again.pte", **GGUF, lm_head="4")
    assert {warning.filename for warning in messages} == {__file__}
    kept = gguf_talker.write(tmp_path / "kept.gguf", kind="Q4_0")
    export_llm(kept, tmp_path / "kept.pte", **GGUF, lm_head="4")
    assert not [warning for warning in recwarn if issubclass(warning.category, ExportWarning)]
    notes = json.loads((tmp_path / "kept.quality.json").read_text())["quantized"]["notes"]
    assert notes == ["15 layers with their exact values: Q4_0 in the checkpoint, 4w in groups of 32 in the program"]


def test_export_command_reports_layers_and_removes_old_quality(tmp_path, capsys, lowered):
    arguments = ["export", str(gguf_talker.write(tmp_path / "m.gguf", kind="Q4_1")), "-o", str(tmp_path / "m.pte")]
    arguments += [
        "--quantize",
        "4w",
        "--no-calibrate",
        "--embedding",
        "8",
        "--max-context",
        "48",
        "--max-prefill",
        "16",
    ]
    arguments += ["--exporter", "torch"]  # which measures what it quantizes
    warned = "warning: 14 layers quantized a second time: Q4_1 in the checkpoint, 4w in groups of 32 in the program"
    assert main(arguments) == 0
    said = capsys.readouterr()
    figures = json.loads((tmp_path / "m.quality.json").read_text())["quantized"]
    assert figures["kinds"] == {"4w in groups of 32": 14, "8w": 2} and warned in said.err
    text = f"{figures['bits_per_weight']:.2f} bits per weight; layers: 14 × 4w in groups of 32, 2 × 8w"
    assert text in said.out.splitlines() and "warning" not in said.out
    assert main([*arguments, "--no-quality"]) == 0
    said = capsys.readouterr()
    assert warned in said.err and "bits per weight" not in said.out
    assert not (tmp_path / "m.quality.json").exists()
    (tmp_path / "m.quality.json").write_text("{}")
    with pytest.warns(ExportWarning):
        export_llm(tmp_path / "m.gguf", tmp_path / "m.pte", **GGUF, quality=False)
    assert not (tmp_path / "m.quality.json").exists()
