"""Modules and checkpoints that webpte.export lowers give programs that equal eager PyTorch."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import webpte
from tests.support.export import exporting
from tests.support.harness.cases import assert_close
from tests.support.harness.errors import raises
from tests.support.models import example_models
from webpte.export import export_llm, lower
from webpte.llm import LLM
from webpte.progress import Progress

torch = pytest.importorskip("torch")
EXPORTER = ["builder/llm", "checkpoints/families/llama"]  # modules that write the program


def test_lower_a_module_with_dynamic_rows(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.GELU(), torch.nn.Linear(24, 5))
    seen: list[Progress] = []
    shapes = ({0: torch.export.Dim("rows", max=31)},)
    lower(module, (torch.randn(7, 16),), shapes, path=tmp_path / "m.pte", progress=seen.append)
    updates = [(event.stage, event.done, event.total) for event in seen]
    assert updates == [(stage, done, 1) for stage in ("trace", "edge", "delegate", "write") for done in (0, 1)]
    with webpte.load(tmp_path / "m.pte") as program:
        for rows in (31, 3):
            x = torch.randn(rows, 16)
            assert_close(program.method()(x), module(x).detach().numpy(), 1e-5, 1e-5, f"{rows} rows")
    assert [p.name for p in tmp_path.iterdir()] == ["m.pte"]


def test_export_input_names_are_kept(tmp_path):
    class Masked(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, tokens, mask):
            return tokens * mask, tokens + mask

    tokens, mask = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)
    lower(Masked(), (torch.ones(2, 3), torch.ones(2, 3)), path=tmp_path / "m.pte")
    with webpte.load(tmp_path / "m.pte") as program:
        method = program.method()
        assert [info.name for info in method.inputs] == ["tokens", "mask"]
        assert np.array_equal(method(mask=mask, tokens=tokens)[0], tokens * mask)


def test_executorch_runs_a_file_with_names():
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.runtime import Runtime

    from webpte.export.lowering import input_names_pass

    class Scaled(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, tokens, factor):
            return tokens * factor

    x, factor = torch.arange(3.0), torch.full((3,), 2.0)
    edge = to_edge(torch.export.export(Scaled(), (x, factor)))
    executorch_program = edge.to_executorch(
        ExecutorchBackendConfig(memory_planning_pass=input_names_pass(alloc_graph_input=False))
    )
    (theirs,) = Runtime.get().load_program(executorch_program.buffer).load_method("forward").execute((x, factor))
    with webpte.load(executorch_program.buffer) as program:
        assert np.array_equal(program.method()(factor=factor, tokens=x), theirs)


def test_lower_quantizes_linears(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 32))
    x = torch.randn(3, 64)
    plain = module(x).detach().numpy()
    lower(module, (x,), quantize="4w", group_size=32, path=tmp_path / "m.pte")
    with webpte.load(tmp_path / "m.pte") as program:
        got = program.method()(x)
        assert "et_vk.linear_q4gsw.default" in {call.name for call in program.graph("forward").calls}
    assert_close(got, module(x).detach().numpy(), 1e-5, 1e-5, "against the quantized module")
    assert 1e-4 < np.abs(got - plain).max() < 1


def test_unknown_quantization_is_refused(tmp_path):
    with raises(webpte.InputError, "quantize", "4w, 8w, 8da4w", "'2w'"):
        lower(torch.nn.Linear(4, 4), (torch.randn(1, 4),), quantize="2w", path=tmp_path / "m.pte")


def save_checkpoint(folder):
    """Return a Llama of Hugging Face's with random weights, saved as people save them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-3,  # neither is a usual default, and the weights are small enough for it to matter
        rope_theta=500.0,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=[2, 3],
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({chr(32 + i): i for i in range(96)}, unk_token="?"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    return model


def test_export_safetensors_logits_equal_transformers(tmp_path):
    model = save_checkpoint(tmp_path)

    def make(folder):
        export_llm(tmp_path, folder / "tiny.pte", max_context=48, max_tokens=16)

    folder = example_models.cached("hf-llama", [], make, inspect.getsource(save_checkpoint), exporter=EXPORTER)
    beside = {"tiny.tokenizer.json", "tiny.chat_template.jinja", "tiny.generation_config.json"}
    assert {p.name for p in folder.iterdir()} == {"tiny.pte", *beside}
    tokens = [(7 * i + 3) % 96 for i in range(40)]
    with torch.no_grad():
        want = model(torch.tensor([tokens])).logits[0].numpy()  # (S, V)
    with LLM.load(folder / "tiny.pte") as llm:
        assert (llm.capacity, llm.engine.runner.max_batch_tokens) == (48, 15)
        assert {2, 3} <= llm.stop_tokens
        assert llm.render([{"role": "user", "content": "hi"}]) == "hi"
        talk, position = llm.sequence(), 0
        for count in (13, 1, 1, 15, 10):
            position += count
            got = talk.logits(tokens[position - count : position])
            assert_close(got[0], want[position - 1], 1e-4, 1e-4, f"after {position} tokens")


@pytest.mark.parametrize(
    ("change", "error", "values"),
    [
        ({"model_type": "bert"}, webpte.UnsupportedError, ["bert", "model_type", "llama"]),
        (None, webpte.FormatError, [".gguf", "config.json"]),
    ],
)
def test_unsupported_checkpoint_error_states_reason(tmp_path, change, error, values):
    if change is not None:
        (tmp_path / "config.json").write_text(json.dumps(change))
    with raises(error, tmp_path, *values):
        export_llm(tmp_path, tmp_path / "x.pte")
    assert not (tmp_path / "x.pte").exists()


def test_export_invalid_gguf_file_raises(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUX" + bytes(64))
    with raises(webpte.FormatError, "x.gguf"):
        export_llm(Path(tmp_path / "x.gguf"), tmp_path / "x.pte")


def test_export_cancelled_leaves_no_file(tmp_path):
    cancel, seen = webpte.CancelToken(), []

    def progress(event: Progress) -> None:
        seen.append(event.stage)
        if event.stage == "edge":
            cancel.cancel()

    with raises(webpte.CancelledError, "'edge'", "1 of 1 steps"):
        lower(torch.nn.Linear(4, 4), (torch.ones(1, 4),), path=tmp_path / "m.pte", progress=progress, cancel=cancel)
    assert seen == ["trace", "trace", "edge"] and not list(tmp_path.iterdir())
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(60))
    with raises(webpte.CancelledError, "'read'", "0 of 1 steps"):
        export_llm(tmp_path / "x.gguf", tmp_path / "m.pte", cancel=cancel)


def test_exporter_output_is_not_printed_by_first_test(tmp_path, capsys):
    """With a cold cache any test may export, also one that reads what a command prints."""
    exporting.kept(tmp_path / "kept", "talkative", {}, lambda folder: print("quantize an embedding"))
    assert capsys.readouterr().out == ""
