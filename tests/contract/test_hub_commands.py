"""Commands that name a program on a hub: check, inspect, run, generate and chat."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

from tests.process.test_hub_programs import constant, publish
from tests.support.harness.hub_server import HubServer, patched_hub
from tests.support.models import talker
from webpte.builder import build_program
from webpte.cli import main
from webpte.llm import LLM

CHAT = "hf:community/Talker-WebGPU"
GREEDY = ("--max-new-tokens", "8", "--temperature", "0")


@pytest.fixture(scope="module")
def language_model(tmp_path_factory) -> dict[str, bytes]:
    """Return the files of a repository with a language model: a folder for each backend, the tokenizer above them."""
    folder = tmp_path_factory.mktemp("talker")
    talker.write_checkpoint(folder / "checkpoint")
    build_program(folder / "checkpoint", folder / "talker.pte", max_context=64)
    beside = {name: (folder / "checkpoint" / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    return beside | {
        "webgpu/talker_webgpu.pte": (folder / "talker.pte").read_bytes(),
        "coreml/talker_coreml.pte": b"\0\0\0\0ET12" + bytes(5000),
    }


@pytest.fixture
def hub(language_model, tmp_path, monkeypatch) -> Iterator[HubServer]:
    with patched_hub(tmp_path / "cache", monkeypatch) as server:
        publish(server, tmp_path)
        server.add("community/Talker-WebGPU", language_model)
        yield server


def test_check_inspect_and_run_by_name_use_the_vulkan_variant(hub, tmp_path, capsys):
    name, variant = "hf:maker/react-native-classifier", "vulkan/classifier_vulkan_fp16.pte"
    assert main(["check", name]) == 0
    assert f"{name}/{variant}" in capsys.readouterr().out
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.pte"))
    assert main(["inspect", name]) == 0
    output, errors = capsys.readouterr()
    assert "aten.mul.Tensor" in output and f"{variant} (Vulkan, 1.05 MB) of 4 variants" in errors
    saved = str(tmp_path / "out.npz")
    assert main(["run", "hf:community/Net-WebGPU", "--input", "ones", "--repeat", "0", "--save", saved]) == 0
    with np.load(saved) as arrays:
        assert any(np.array_equal(arrays[key], constant(3.0)) for key in arrays.files)


def test_chat_and_generate_by_name_answer_equally_and_offline(hub, capsys, monkeypatch):
    environment = {"HF_ENDPOINT": hub.address, "HF_HUB_CACHE": constants.HF_HUB_CACHE, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "webpte", "chat", CHAT, *GREEDY]
    chat = subprocess.run(
        command, input="hello\n", env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    answer = chat.stdout.strip("\n")
    assert chat.returncode == 0 and len(answer) == 8 and "webgpu/talker_webgpu.pte" in chat.stderr, chat.stderr
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    before = len(hub.requests)
    assert main(["generate", CHAT, "hello", *GREEDY]) == 0
    assert capsys.readouterr().out.strip("\n") == answer and len(hub.requests) == before
    with LLM.load(CHAT) as llm:
        assert llm.template == talker.CHAT_TEMPLATE and llm.capacity == 64
