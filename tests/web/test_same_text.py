"""SmolLM2 with its defaults gives one text in Python, on the command line, from the server and in a page.

Not part of the ordinary run: `pytest -m slow tests/web/test_same_text.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest

import webpte
from tests.studies.in_page.visit import load, visiting
from tests.support.harness.browser import WEBGPU, chromium
from tests.support.harness.serving import Running
from tests.support.harness.site_server import serving
from tests.support.models.smollm import gguf
from webpte.builder import build_program
from webpte.llm import LLM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

QUESTIONS = ("What is the capital of France?", "Name three fruits that are red.")
TOKENS = 24
ASK = """async (request) => {
  const answer = await globalThis.model.chat.completions.create(request);
  return answer.choices[0].message.content;
}"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(gguf(), tmp_path_factory.mktemp("smollm2") / "smollm2.pte", max_context=256)


@pytest.fixture(scope="module")
def texts(program: Path) -> list[str]:
    with LLM(str(program)) as llm:
        return [str(llm.generate(question, max_new_tokens=TOKENS)) for question in QUESTIONS]


def messages(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def test_generate_command_same_text_as_python(program: Path, texts: list[str]) -> None:
    command = [sys.executable, "-m", "webpte", "generate", str(program), "--max-new-tokens", str(TOKENS), "--json"]
    for question, text in zip(QUESTIONS, texts, strict=True):
        printed = subprocess.run([*command, question], check=True, capture_output=True, text=True).stdout
        assert json.loads(printed)["text"] == text


def test_server_same_text_as_python(program: Path, texts: list[str]) -> None:
    with Running(program, "--queue-timeout", 600, "--ttft-timeout", 600, patience=900) as server:
        openai_client = openai.OpenAI(base_url=server.api, api_key="none", max_retries=0, timeout=600)
        with openai_client as client, httpx.Client(base_url=server.url, timeout=600) as ollama:
            for question, text in zip(QUESTIONS, texts, strict=True):
                answer = client.chat.completions.create(
                    model="smollm2",
                    messages=messages(question),  # type: ignore[arg-type]
                    max_tokens=TOKENS,
                )
                body = {"model": "smollm2", "messages": messages(question), "stream": False}
                reply = ollama.post("/api/chat", json=body | {"options": {"num_predict": TOKENS}}).json()
                assert answer.choices[0].message.content == reply["message"]["content"] == text


def test_page_same_text_as_python(program: Path, texts: list[str], tmp_path: Path) -> None:
    with webpte.load(program) as loaded:
        webpte.bundle(loaded, tmp_path / "site")
    with (
        serving({"site": tmp_path / "site"}) as server,
        chromium(*WEBGPU) as browser,
        visiting(browser, server, minutes=30) as page,
    ):
        load(page)
        for question, text in zip(QUESTIONS, texts, strict=True):
            assert page.evaluate(ASK, {"messages": messages(question), "max_tokens": TOKENS}) == text
