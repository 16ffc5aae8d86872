"""A checkpoint in place of a program: built on first use, without torch, and found in the cache afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.support.models import gguf_families
from tests.support.models.families import tinies, tokens
from webpte.builder.programs import list_programs
from webpte.llm import LLM

SCRIPT = """
import sys
from webpte.llm import LLM
with LLM.load(sys.argv[1]) as llm:
    llm.stop_tokens = frozenset()
    answer = llm.generate(tokens=[int(token) for token in sys.argv[2:]], max_new_tokens=5)
    list(answer)
    print(answer.tokens)
packages = {name.partition(".")[0] for name in sys.modules}
print(packages & {"torch", "executorch", "transformers", "safetensors", "gguf"})
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkpoint = tmp_path / "tiny"
    checkpoint.mkdir()
    tinies()["llama"]["plain"].save(checkpoint)
    return checkpoint


def answer(path) -> list[int]:
    with LLM.load(path) as llm:
        llm.stop_tokens = frozenset()
        generation = llm.generate(tokens=tokens(), max_new_tokens=5)
        list(generation)
        return generation.tokens


def test_load_folder_and_gguf_as_models(folder, tmp_path):
    file = gguf_families.write_gguf(folder, tmp_path / "tiny.gguf")
    first = answer(folder)
    assert len(first) == 5 and answer(folder) == first and answer(file) == first
    assert {program.path.name for program in list_programs()} == {"tiny.pte"} and len(list_programs()) == 2


def test_load_checkpoint_builds_and_generates_without_torch(folder):
    command = [sys.executable, "-c", SCRIPT, str(folder), *map(str, np.array(tokens()).tolist())]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout
    first, packages = output.splitlines()
    assert first == str(answer(folder)) and packages == "set()"
