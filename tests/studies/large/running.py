"""A large program: what loading it takes, beside what was foretold."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import webpte
from webpte.device import acquire
from webpte.llm import LLM

NEAR = 0.05  # how far memory may be from what was foretold


def first_token(path: Path) -> bool:
    """Load, compute the first token by the program and by `LLM`; whether memory was as foretold."""
    acquire({})  # the driver itself is not what is measured
    began, before = time.perf_counter(), _resident()
    with webpte.load(path) as program:
        foretold = program.memory("forward").total
        method = program.method()
        loaded = time.perf_counter()
        logits = method(np.array([[1, 2, 3]]), np.array([0]))
        first, taken = time.perf_counter(), _resident() - before
    assert np.isfinite(logits).all()
    print(f"loaded in {loaded - began:.1f} s, logits of 3 tokens after {first - loaded:.1f} s more")
    print(f"memory: {foretold / 1e6:.0f} MB foretold, {taken / 1e6:.0f} MB taken ({taken / foretold - 1:+.1%})")
    with LLM.load(path, tune="off") as llm:
        chosen = llm.complete("w1 w2 w3", max_new_tokens=1).result()
        print(f"first token {chosen!r}, the program's own is w{int(logits.argmax())}")
    return abs(taken / foretold - 1) < NEAR


def _resident() -> int:
    """Return resident memory without the mapping of the program."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))
