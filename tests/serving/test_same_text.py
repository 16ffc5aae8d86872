"""A prompt with a model's defaults has the same answer in Python, on the command line and from the server."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.models.caller_files import write_caller
from webpte.llm import LLM

MODEL = "caller"
QUESTION = "What is the weather?"
TOKENS = 40


def test_defaults_give_the_same_text_everywhere(client, raw, tmp_path):
    program = str(write_caller(tmp_path))
    with LLM(program) as llm:
        text = str(llm.generate(QUESTION, max_new_tokens=TOKENS))
        greedy = str(llm.generate(QUESTION, max_new_tokens=TOKENS, temperature=0))
    command = [sys.executable, "-m", "webpte", "generate", program, QUESTION, "--max-new-tokens", str(TOKENS), "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=TOKENS)
    body = {"model": MODEL, "messages": messages, "stream": False, "options": {"num_predict": TOKENS}}
    ollama = raw.post("/api/chat", json=body).json()
    assert json.loads(printed)["text"] == text
    assert answer.choices[0].message.content == ollama["message"]["content"] == text
    explicit = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=TOKENS, temperature=0)
    assert explicit.choices[0].message.content == greedy
