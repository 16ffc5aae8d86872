"""What a row asks of a bundle: calls as plain data, which a page and a process on the same driver play equal."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import webpte

from ..problems import Array, Problem
from ..programs import program

LOGITS, TOKEN = 0, 1
PIECE = 32  # tokens of a prompt in one pass, where only what comes after counts
Argument = dict[str, Any] | int
# Of the token that a page would choose greedily: temperature, top_k, top_p, min_p, seed, step, no mask, unused.
GREEDY = struct.unpack("<8i", struct.pack("<fiffiiii", 0, 0, 1, 0, 0, 0, -1, 0))
TOKENIZER = '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'


@dataclass(frozen=True)
class Script:
    """Calls to make before those that count; the first of these; which output to compare and which to time.

    Where `grows`, a further call has the token of the one before, and the next position.
    """

    slots: int | None
    before: list[list[Argument]]
    call: list[Argument]
    compared: int
    timed: int
    grows: bool

    def json(self) -> dict[str, Any]:
        return asdict(self)


def write_site(row: str, problem: Problem, folder: Path, smollm2: Path | None) -> Script:
    """Return the bundle of a row's program, and how to play the row on it."""
    path = smollm2 if smollm2 is not None and row.startswith("smollm2") else program(row, problem)
    with webpte.load(path) as loaded:
        if problem.kind != "llama":
            call = [argument(array) for array in problem.inputs.values()]
            webpte.bundle(loaded, folder, shapes={"forward": [[array.shape for array in problem.inputs.values()]]})
            return Script(None, [], call, 0, 0, grows=False)
        tokenizer = path.with_name(f"{path.stem}.tokenizer.json")
        if not tokenizer.exists():
            tokenizer = folder.with_suffix(".json")  # no one reads it: the rows are tokens
            tokenizer.write_text(TOKENIZER)
        webpte.bundle(loaded, folder, tokenizer=tokenizer, sequences=1)
    return language_script(problem)


def language_script(problem: Problem) -> Script:
    ids, past = problem.inputs["ids"].ravel(), problem.size("past")
    if not past:
        return Script(1, [], rows(ids, 0, len(ids)), LOGITS, TOKEN, grows=False)
    prompt = problem.inputs["prompt"].ravel()
    before = [rows(prompt[start : start + PIECE], start, PIECE) for start in range(0, past, PIECE)]
    return Script(1, before, rows(ids, past, 1, num_decode=1), LOGITS, TOKEN, grows=True)


def rows(ids: Array, start: int, count: int, num_decode: int = 0) -> list[Argument]:
    """Return one pass over `count` rows: the tokens, and idle ones after them."""
    tokens, slot_mapping = np.zeros((1, count), np.int64), np.tile(np.array([-1, 0], np.int32), (count, 1))
    tokens[0, : len(ids)] = ids
    slot_mapping[: len(ids)] = [(0, start + i) for i in range(len(ids))]
    logits_indices = np.array([len(ids) - 1], np.int32)
    choices = argument(np.array(GREEDY, np.int32))
    return [argument(tokens), argument(slot_mapping), num_decode, argument(logits_indices), 0, choices, 0, 0]


def argument(array: Array) -> Argument:
    """As the player takes it."""
    return {"data": array.ravel().tolist(), "dims": list(array.shape)}
