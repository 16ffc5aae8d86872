"""What a program, and the files beside it, say of a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..runtime import Method, Program
from .sampled import LOGITS


def metadata(program: Program, name: str, default: Any) -> Any:
    return program.method(name)() if name in program.method_names else default


def numbers(found: Any) -> tuple[int, ...]:
    """What a method returns that gives one number, or several."""
    return tuple(int(number) for number in (found if isinstance(found, tuple) else (found,)))


def vocabulary(method: Method) -> int:
    """How many tokens the model knows: a logit for each. The tokenizer's count may be another."""
    bound = method.outputs[LOGITS].bound
    assert bound is not None  # with_sampler refuses anything else
    return bound[-1]


def cache_rows(method: Method) -> int:
    """The length of the KV caches, where the program does not say it: they are (B, C, H, D)."""
    graph = method.plan.graph
    rows = [graph.tensor(t).dims[1] for b in method.plan.buffers if b.kind == "state" for t in b.tensors]
    if not rows:
        raise InputError("the program has no KV cache; export it with one to generate text")
    return min(rows)


def context(program: Program, method: Method) -> int:
    """Tokens that a sequence may have."""
    return int(metadata(program, "get_max_context_len", cache_rows(method)))


def beside(program: Path, name: str) -> Path | None:
    """`model.tokenizer.json`, or `tokenizer.json`, in the folder of `model.pte`."""
    for candidate in (program.with_name(f"{program.stem}.{name}"), program.with_name(name)):
        if candidate.exists():
            return candidate
    return None
