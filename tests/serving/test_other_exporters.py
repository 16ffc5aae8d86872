"""Language models that ExecuTorch's `export_llama` and optimum-executorch wrote: their own runners' tokens."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import httpx
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.errors import raises
from tests.support.harness.hub_server import patched_hub
from tests.support.harness.serving import Running
from tests.support.models.export_llama import EXPORTS, answer_of, export_llama
from tests.support.models.tiny_llm import CHAT_TEMPLATE
from tests.unit.test_tokenizer_formats import ranks, sentencepiece_model
from webpte.cli import main
from webpte.llm import LLM
from webpte.llm.tokenizer_formats import as_tokenizer_json
from webpte.text import sanitize

OPTIMUM = sorted((Path(__file__).parents[1] / "studies" / "exporters").glob("optimum_*.pte"))
GATED = {"xnnpack", "xnnpack_plain_attention", "xnnpack_8da4w", "vulkan_4w"}
NAMES = [pytest.param(name, marks=() if name in GATED else pytest.mark.slow) for name in EXPORTS if "bf16" not in name]
BATCHED = {"xnnpack", "xnnpack_8da4w", "portable", "vulkan", "vulkan_4w"}


def laid_out(program, folder, tokenizer):
    """Return a copy of a program with a tokenizer and a chat template beside it."""
    path = folder / "model.pte"
    shutil.copy(program, path)
    (folder / "tokenizer.model").write_bytes(tokenizer)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_export_llama_tokens_equal_its_own_runner(name, tmp_path):
    exported = export_llama(name)
    prompt, tokens, _ = answer_of(exported)
    with LLM(laid_out(exported.path, tmp_path, sentencepiece_model())) as llm:
        assert llm.vocabulary == EXPORTS[name]["vocabulary"] and llm.capacity == 128
        assert llm.stop_tokens >= {2, 3}
        assert (llm.batching_unsupported_reason is None) == (name in BATCHED)
        answer = llm.generate(tokens=prompt, max_new_tokens=len(tokens), temperature=0)
        answer.result()
        assert answer.tokens == tokens


@pytest.mark.slow
def test_export_llama_bf16_is_refused_with_the_remedy(tmp_path):
    """Its linears and attention are not in a delegate: those in bf16 run on the CPU only."""
    exported = export_llama("xnnpack_bf16")
    program = laid_out(exported.path, tmp_path, sentencepiece_model())
    with raises(webpte.UnsupportedError, "bf16", 'fallback="cpu"'):
        LLM(program)
    prompt, tokens, _ = answer_of(exported)
    with LLM(program, fallback="cpu") as llm:
        answer = llm.generate(tokens=prompt, max_new_tokens=4, temperature=0)
        answer.result()
        assert answer.tokens[0] == tokens[0]  # later ones may differ: logits in bf16 are often equal


@pytest.mark.parametrize("program", OPTIMUM, ids=lambda path: path.stem)
def test_optimum_tokens_equal_its_own_runner(program, tmp_path):
    expected = json.loads(program.with_suffix(".json").read_text())
    prompt, tokens = expected["prompt"], expected["tokens"]
    with LLM(laid_out(program, tmp_path, sentencepiece_model())) as llm:
        assert llm.capacity == 64 and 2 in llm.stop_tokens
        many = [{"tokens": prompt, "max_new_tokens": len(tokens)}, {"tokens": prompt[:3], "max_new_tokens": 4}]
        answers = [answer.tokens for answer in llm.generate_many(many * 2, temperature=0)]
        assert answers[0] == answers[2] == tokens and answers[1] == answers[3]


def test_front_ends_print_and_send_the_same_text(tmp_path, capsys, monkeypatch):
    """With tiktoken's ranks as its tokenizer."""
    exported = export_llama("xnnpack_8da4w")
    program = laid_out(exported.path, tmp_path, ranks())
    with LLM(program) as llm:
        answer = llm.generate("fox", max_new_tokens=8)
        text = answer.text
        assert llm.text_model.tokenizer.token_id("<|eot_id|>") in llm.stop_tokens
    limit = ("--max-new-tokens", "8")
    assert main(["generate", str(program), "fox", "--json", *limit]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"fox\n"), encoding="utf-8"))
    assert main(["chat", str(program), *limit]) == 0
    assert sanitize(text) in capsys.readouterr().out
    with Running(program) as server:
        body = {"model": "model", "messages": [{"role": "user", "content": "fox"}], "max_tokens": 8}
        response = httpx.post(f"{server.api}/chat/completions", json=body, timeout=240).json()
    assert response["choices"][0]["message"]["content"] == text


def test_repository_of_react_native_executorch_answers_by_name(tmp_path, monkeypatch):
    """Laid out as the constants of the npm package name its files: a model's variants, the tokenizer above them.

    Its runner is ExecuTorch's, and so are the methods of its programs. The chat template is in tokenizer_config.json.
    """
    name, model = "software-mansion/react-native-executorch-qwen-3", "qwen-3-0.6B"
    quantized = export_llama("xnnpack_8da4w")
    files = {
        "config.json": b'{"model": "qwen3"}',
        "tokenizer.json": as_tokenizer_json("tokenizer.model", sentencepiece_model()),
        "tokenizer_config.json": json.dumps({"chat_template": CHAT_TEMPLATE, "eos_token": "</s>"}).encode(),
        f"{model}/original/qwen3_0_6b_fp32.pte": export_llama("xnnpack").path.read_bytes(),
        f"{model}/quantized/qwen3_0_6b_8da4w.pte": quantized.path.read_bytes(),
    }
    prompt, tokens, _ = answer_of(quantized)
    with patched_hub(tmp_path / "cache", monkeypatch) as hub:
        hub.add(name, files)
        with LLM(f"hf:{name}") as llm:
            assert llm.template == CHAT_TEMPLATE and llm.text_model.tokenizer.token_id("</s>") in llm.stop_tokens
            answer = llm.generate(tokens=prompt, max_new_tokens=len(tokens), temperature=0)
            answer.result()
            assert answer.tokens == tokens
        assert hub.sent[f"{model}/original/qwen3_0_6b_fp32.pte"] <= 1 << 16  # its header


def test_program_without_kv_cache_is_refused(tmp_path):
    program = laid_out(export("llama", kv_cache=False).path, tmp_path, sentencepiece_model())
    with raises(webpte.InputError, "no KV cache", "use_kv_cache", code="no_kv_cache"):
        LLM(program)
