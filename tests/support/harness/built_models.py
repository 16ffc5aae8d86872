"""Run a built language model as users do, and return the logits that transformers must have.

Two texts are in two slots: a step reads both prompts, and the following steps have a token of each. The program's own
method, which other runtimes call, has the first text alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models.families import CONTEXT, MAX_TOKENS, VOCABULARY, tokens
from webpte.llm.engine.runner import BatchToken

PROMPTS = (13, 10)  # tokens of each text that the first step reads: longer than the windows of the families
STEPS = 3  # with a token of each text
LENGTH = max(PROMPTS) + STEPS
SIZES: dict[str, Any] = {"max_context": CONTEXT, "max_tokens": MAX_TOKENS}


@cache
def texts() -> list[list[int]]:
    other = np.random.default_rng(11).integers(3, VOCABULARY, LENGTH)
    return [tokens()[:LENGTH], other.tolist()]


def expected_logits(model: Any) -> np.ndarray:
    """Return the logits of transformers after each token of both texts, (2, LENGTH, V).

    It reads on to the end of the context, which decides the RoPE of some models.
    """
    import torch

    rows = [[*text, *[3] * (CONTEXT - LENGTH)] for text in texts()]
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor(rows), use_cache=False).logits[:, :LENGTH].numpy()
    return logits


def slots_error(path: Path, expected: np.ndarray, **options: Any) -> float:
    """Return the largest difference of any logit in two slots, relative to the largest logit."""
    from webpte.llm import LLM

    with LLM.load(path, max_sequences=2, **options) as llm:
        assert llm.batching_unsupported_reason is None
        llm.engine.kv_slots.grow_to_max()
        steps = [[range(count) for count in PROMPTS]]
        steps += [[range(at + step, at + step + 1) for at in PROMPTS] for step in range(STEPS)]
        return max(_step_error(llm.engine.runner, spans, expected) for spans in steps)


def _step_error(runner: Any, spans: list[range], expected: np.ndarray) -> float:
    """Run a step over positions of each text; compare the logits after all of them."""
    rows = [(slot, position) for slot, span in enumerate(spans) for position in span]
    batch = [BatchToken(texts()[slot][position], slot, position) for slot, position in rows]
    return difference(runner.logits(batch, len(batch)), np.stack([expected[row] for row in rows]))


def method_error(path: Path, expected: np.ndarray) -> float:
    """Return the same of the program's own method, after a prompt and after each further token."""
    import webpte

    text, start = texts()[0], PROMPTS[0]
    with webpte.load(path) as program:
        forward = program.method("forward", lazy=True)
        pieces = [(text[:start], 0), *(([text[at]], at) for at in range(start, LENGTH))]
        got = [np.array(forward(np.array([piece]), np.array([at]))).reshape(-1) for piece, at in pieces]
    return difference(np.array(got), expected[0, start - 1 :])


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest expected value; infinity for NaN."""
    assert got.shape == expected.shape, f"{got.shape}, not {expected.shape}"
    assert np.isfinite(expected).all() and np.abs(expected).max() > 0.1
    largest = float(np.abs(got - expected).max() / np.abs(expected).max())
    return largest if np.isfinite(got).all() else float("inf")
