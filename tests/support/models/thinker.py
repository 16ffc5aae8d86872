"""A model that thinks before it answers: each token decides the next one, so its response is a script.

Its family is Llama's, without effect of attention and feed-forward: the row of a token in the head points to the token
before it in the script.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.models.tokenizers import byte_level
from webpte.builder.llm import build_program

LAYERS, HEADS = 1, 2
THOUGHT = ("\nThe user", " greets", " me.", " I write </thi", "nk> or", " {", "}.", "\n")
ANSWER = ("\n\n", "Good", " morning", "!")
END = "<|im_end|>"
OPENING = "<|im_start|>assistant\n"
REASONING, TEXT = "".join(THOUGHT).strip(), "".join(ANSWER).strip()
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
OPEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}"
)  # which begins the thought, and knows no switch


def write_thinker(
    folder: Path,
    name: str = "thinker",
    template: str = TEMPLATE,
    thought: Sequence[str] = THOUGHT,
    answer: Sequence[str] = ANSWER,
    context: int = 512,
) -> Path:
    """Return the path of the program, everything beside it."""
    from safetensors.numpy import save_file
    from tokenizers import AddedToken

    checkpoint = folder / f"{name}-checkpoint"
    checkpoint.mkdir(parents=True)
    tokenizer = byte_level(words=())
    inner = tokenizer.backend_tokenizer
    inner.add_special_tokens([AddedToken("<|im_start|>", special=True)])
    words = [OPENING.removeprefix("<|im_start|>"), "<think>", "</think>", *thought, *answer]
    inner.add_tokens([AddedToken(word, special=False, normalized=False) for word in dict.fromkeys(words)])
    inner.save(str(checkpoint / "tokenizer.json"))
    script = [OPENING.removeprefix("<|im_start|>"), "<think>", *thought, "</think>", *answer, END]
    numbers = [number for word in script if (number := tokenizer.token_id(word)) is not None]
    assert len(numbers) == len(script)
    size = tokenizer.size
    width = -(-size // 32) * 32
    config = {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "vocab_size": size,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "eos_token_id": tokenizer.token_id(END),
    }
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": END}))
    save_file(_weights(size, width, numbers), checkpoint / "model.safetensors")
    return build_program(checkpoint, folder / f"{name}.pte", quantize=None, max_context=context)


def _weights(size: int, width: int, script: Sequence[int]) -> dict[str, np.ndarray]:
    table, head = np.eye(size, width, dtype=np.float32), np.zeros((size, width), np.float32)
    for before, after in itertools.pairwise(script):
        head[after, before] = 1.0
    weights = {"model.embed_tokens.weight": table, "lm_head.weight": head}
    shapes = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (width, width),
        "self_attn.v_proj": (width, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (32, width),
        "mlp.up_proj": (32, width),
        "mlp.down_proj": (width, 32),
    }
    prefix = "model.layers.0"
    weights |= {f"{prefix}.{name}.weight": np.zeros(shape, np.float32) for name, shape in shapes.items()}
    norms = (f"{prefix}.input_layernorm", f"{prefix}.post_attention_layernorm", "model.norm")
    return weights | {f"{norm}.weight": np.ones(width, np.float32) for norm in norms}
