"""Records the chats of `chat.md`, from the root of the repository:

    python -m docs.make_chat smollm2.pte          # a conversation
    python -m docs.make_chat --first smollm2.gguf # the first chat with a short name

A real `webpte chat` in a pseudo-terminal of 80 x 24, whose screen, with what has scrolled away, becomes the page's. The
first chat has empty caches and a hub on loopback with the GGUF file's weights.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.harness.hub_server import hub_server
from tests.support.harness.screen import Screen
from tests.support.models.gguf_families import permuted, tensor_names

PAGE = Path(__file__).parent / "chat.md"
SAID = (
    "What is the capital of France?",
    "And of Italy?",
    "/undo",
    "/set temperature 0.5",
    "Name three colors, as a list.",
    "/tokens",
)
SHORT_NAME, REPOSITORY = "smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"
LIMIT = ["--max-new-tokens", "48"]


def record(model: str) -> str:
    with tempfile.TemporaryDirectory() as state:
        screen = Screen(["webpte", "chat", model, *LIMIT], 80, 24, {"XDG_STATE_HOME": state})
        lines, _ = conversation(screen, SAID)
    return "\n".join([f"$ webpte chat {Path(model).name} {' '.join(LIMIT)}", *lines])


def record_first(gguf: Path) -> str:
    """Return what is shown from empty caches to the first answer: each step of progress once, as it was last seen."""
    with tempfile.TemporaryDirectory() as folder, hub_server() as hub:
        hub.add(REPOSITORY, checkpoint(gguf))
        places = ("HF_HUB_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
        environment = {"HF_ENDPOINT": hub.address, **{name: str(Path(folder) / name) for name in places}}
        screen = Screen(["webpte", "chat", SHORT_NAME, *LIMIT], 80, 24, environment)
        lines, progress = conversation(screen, SAID[:1])
    return "\n".join([f"$ webpte chat {SHORT_NAME} {' '.join(LIMIT)}", *progress, *lines])


def conversation(terminal: Screen, said: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the lines on the screen after a conversation, and those that were shown before it and replaced."""
    steps: dict[str, str] = {}

    def started(screen: Screen) -> bool:
        for line in filter(str.strip, screen.lines):
            steps[re.split(r"[━╸╺]", line)[0].strip()] = line.rstrip()
        return waiting(screen)

    with terminal as screen:
        screen.wait(started, timeout=900)
        for number, text in enumerate(said, 1):
            screen.say(text)
            screen.wait(partial(answered, number), timeout=300)
        lines = screen.all_lines
        while not lines[-2].strip():  # between the prompt and the last line of the screen
            del lines[-2]
        screen.say("/exit")
        screen.ended()
    shown = {line.rstrip() for line in lines}
    return lines, [line for line in steps.values() if line not in shown and not line.startswith((">", " "))]


def waiting(screen: Screen) -> bool:
    return screen.prompt_line == ">" and " tokens " in screen.lines[-1]


def answered(number: int, screen: Screen) -> bool:
    return waiting(screen) and sum(line.startswith("> ") for line in screen.all_lines) == number


def checkpoint(path: Path) -> dict[str, bytes]:
    """Return the files of a repository with the weights of a Llama's GGUF file in f16."""
    import gguf
    from safetensors.numpy import save
    from transformers import LlamaConfig, LlamaForCausalLM

    from webpte.checkpoints.gguf_file import read_gguf

    model = read_gguf(path)
    architecture = model.architecture
    config: dict[str, Any] = {
        "hidden_size": architecture.dim,
        "intermediate_size": architecture.hidden_dim,
        "num_hidden_layers": architecture.n_layers,
        "num_attention_heads": architecture.n_heads,
        "num_key_value_heads": architecture.n_kv_heads,
        "rms_norm_eps": architecture.norm_eps,
        "vocab_size": architecture.vocab_size,
        "rope_theta": architecture.ropes["rope"].theta,
        "tie_word_embeddings": architecture.tied,
        "max_position_embeddings": model.context,
        "bos_token_id": model.bos_id,
        "eos_token_id": list(model.eos_ids),
    }
    fields = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **config}
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    theirs = tensor_names(fields)
    weights = {}
    for name, weight in LlamaForCausalLM(LlamaConfig(**config)).state_dict().items():
        if name == "lm_head.weight" and architecture.tied:
            continue
        tensor = stored[theirs(name)]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(weight.shape)
        weights[name] = np.ascontiguousarray(permuted(name, values, fields, back=True), np.float16)
    return {
        "config.json": json.dumps(fields).encode(),
        "model.safetensors": save(weights, {"format": "pt"}),
        "tokenizer.json": model.tokenizer.encode(),
        "tokenizer_config.json": json.dumps({**model.special_tokens, "chat_template": model.chat_template}).encode(),
    }


if __name__ == "__main__":
    first = sys.argv[1] == "--first"
    recording = record_first(Path(sys.argv[2])) if first else record(sys.argv[1])
    block = rf"```text\n\$ webpte chat {SHORT_NAME}{' ' if first else r'[.]pte '}.*?```"
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(block, lambda _: f"```text\n{recording}\n```", page, flags=re.DOTALL), encoding="utf-8")
