"""A language model that `export_llm` wrote for XNNPACK, in every front end."""

from __future__ import annotations

import io
import json
import shutil
import sys

import httpx
import pytest

import webpte
from tests.studies.xnnpack.running import FOLDER
from tests.support.harness.serving import Running
from tests.support.models.tiny_llm import CHAT_TEMPLATE, tokens_of, write_tokenizer
from webpte.cli import main
from webpte.llm import LLM
from webpte.text import sanitize

TOKENS = 8
PROMPTS = ("hello", "world", "abc")


@pytest.fixture(scope="module", params=["llama_8da4w", "llama_fp32_q8kv"])
def program(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("xnnpack")
    shutil.copy(FOLDER / f"{request.param}.pte", folder / "tiny.pte")
    write_tokenizer(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder / "tiny.pte"


@pytest.fixture(scope="module")
def answers(program):
    """Tokens and texts of the prompts, each alone."""
    with LLM.load(program) as llm:
        assert llm.batching_unsupported_reason is None
        generations = [llm.generate(prompt, max_new_tokens=TOKENS) for prompt in PROMPTS]
        return {prompt: (tokens_of(g), g.text) for prompt, g in zip(PROMPTS, generations, strict=True)}


def test_generate_many_tokens_equal_single_runs(program, answers):
    with LLM.load(program) as llm:
        prompts = [{"prompt": prompt, "max_new_tokens": TOKENS} for prompt in PROMPTS]
        many = [generation.tokens for generation in llm.generate_many(prompts)]
    assert many == [tokens for tokens, _ in answers.values()]


def test_bundle_has_the_tokens_of_the_program(program, answers, tmp_path):
    with webpte.load(program) as loaded:
        webpte.bundle(loaded, tmp_path / "site", sequences=2)
    with LLM.load(tmp_path / "site") as llm:
        for prompt, (tokens, _) in answers.items():
            assert tokens_of(llm.generate(prompt, max_new_tokens=TOKENS)) == tokens


def test_generate_and_chat_print_the_text(program, answers, capsys, monkeypatch):
    limit = ("--max-new-tokens", str(TOKENS))
    assert main(["generate", str(program), "hello", "--json", *limit]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == answers["hello"][1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n"), encoding="utf-8"))
    assert main(["chat", str(program), *limit]) == 0
    assert sanitize(answers["hello"][1]) in capsys.readouterr().out


def test_server_answers_with_the_text(program, answers):
    with Running(program) as server:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": TOKENS}
        answer = httpx.post(f"{server.api}/chat/completions", json=body, timeout=240).json()
    assert answer["choices"][0]["message"]["content"] == answers["hello"][1]
