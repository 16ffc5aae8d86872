"""Conversations about images, compared with transformers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.models.tiny_vlm import CHARACTERS, TEMPLATE, picture
from webpte.llm import LLM

TOKENS = 64  # of an answer
TOLERANCE = 1e-4  # of logits, and of rows of an encoder


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def image(seed: int, *size: int) -> dict[str, Any]:
    return {"type": "image", "image": picture(seed, *size)}


def rendered(messages: list[Any], shown: str) -> tuple[str, list[Any]]:
    """Return the text of a chat with `shown` in the place of each image, and the images."""
    from jinja2 import Template

    parts = [m["content"] if isinstance(m["content"], list) else [text(m["content"])] for m in messages]
    listed = [{**message, "content": content} for message, content in zip(messages, parts, strict=True)]
    images = [part["image"] for content in parts for part in content if part["type"] == "image"]
    return Template(TEMPLATE.replace("<image>", shown)).render(messages=listed), images


def character_ids(prompt: str, special: list[str]) -> list[int]:
    """Return the tokens of a text: characters, and special ones after those."""
    ids = []
    while prompt:
        name = next((name for name in special if prompt.startswith(name)), prompt[0])
        ids.append(len(CHARACTERS) + special.index(name) if name in special else CHARACTERS.index(name))
        prompt = prompt.removeprefix(name)
    return ids


def check_conversation(llm: LLM, model: Any, messages: list[Any], inputs: dict[str, Any]) -> None:
    """Check the greedy tokens and the logits of an answer against a model of transformers with these inputs."""
    import torch

    seen = model.config.image_token_id  # transformers takes it for an image in an answer too
    answer = llm.generate(messages, max_new_tokens=TOKENS, temperature=0, logit_bias={seen: -100})
    answer.result()
    count = inputs["input_ids"].shape[1]
    assert answer.usage.prompt_tokens == count and len(answer.tokens) == TOKENS
    tokens = torch.cat([inputs["input_ids"], torch.tensor([answer.tokens])], 1)
    for name in {"mm_token_type_ids", "token_type_ids"} & inputs.keys():
        inputs = {**inputs, name: torch.nn.functional.pad(inputs[name], (0, TOKENS))}
    with torch.no_grad():
        expected = model(**{**inputs, "input_ids": tokens}).logits[0, count - 1 :].numpy()
    choices = np.delete(expected[:-1], seen, axis=1).argmax(1)
    assert answer.tokens == [choice + (choice >= seen) for choice in choices]  # greedy, as each follows the same tokens
    talk = llm.sequence()
    talk.generate(messages, max_new_tokens=1).result()
    logits = talk.logits(answer.tokens, every=True)
    assert np.abs(logits - expected[1:]).max() <= TOLERANCE
