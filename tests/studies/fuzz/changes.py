"""Bytes and JSON documents with a few things changed, as a seed decides."""

from __future__ import annotations

import functools
import json
from random import Random
from typing import Any

from tests.studies.fuzz.documents import Way, ways

WORDS = [0, 1, 2, 4, 7, 8, 16, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 20, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
LONG_WORDS = [*WORDS, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
STRANGE: list[Any] = [
    *(None, True, False, -1, 0, 1, 3, 2**31, 2**32, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324, float("nan")),
    *("", " ", "x", "nan", "../../etc/passwd", "/etc/passwd", "\ud800", "\0", "\U0001f600", "▁", "##", "a" * 5000),
    *("{{x}}", "(a+)+$", "\\", "(", "[", "(?=", "\\p{Zz}", ".", "$0", "<0x80>"),
    *([], [[]], {}, {"0": 0}, [0] * 1000, [None], ["x"], [["x", "y"]], {"x": 0}, {"type": "Sequence"}),
]
INSERTED = ["\0", "é", "{", "\\", "*", "+", "(", "/", "..", " ", "▁", "\ud800", "\U0001f600"]


def changed_bytes(data: bytes, random: Random, header: int = 512) -> bytes:
    """Flip, replace, remove and repeat bytes; most of it within the first `header` bytes."""
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        if not changed:
            break
        at = random.randrange(min(header, len(changed)) if random.random() < 0.8 else len(changed))
        match random.randrange(8):
            case 0:
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                changed[at] = random.randrange(256)
            case 2:
                changed[at : at + 4] = random.choice(WORDS).to_bytes(4, "little")
            case 3:
                changed[at : at + 8] = random.choice(LONG_WORDS).to_bytes(8, "little")
            case 4:
                del changed[at : at + random.randrange(1, 64)]
            case 5:
                changed[at:at] = changed[at : at + random.randrange(1, 64)]
            case 6 if random.random() < 0.3:
                del changed[at:]
            case _:
                source, size = random.randrange(len(changed)), random.randrange(1, 32)
                changed[at : at + size] = changed[source : source + size]
    return bytes(changed)


@functools.cache
def _ways(text: str) -> list[list[Way]]:
    """Grouped by the names on them, without those of a vocabulary: what stands once is changed as often as what stands
    a thousand times."""
    results: dict[Way, list[Way]] = {}
    for way in ways(json.loads(text)):
        names = tuple(step for step in way if isinstance(step, str))
        results.setdefault(names[:2] if "vocab" in names[:-1] else names, []).append(way)
    return list(results.values())


def changed_json(text: str, random: Random) -> str:
    """Replace, remove, repeat and swap parts of a document."""
    document = json.loads(text)
    groups = _ways(text)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        try:
            _change(document, random.choice(random.choice(groups)), random, groups)
        except (KeyError, IndexError, TypeError):  # an earlier change took the way to it
            continue
    return json.dumps(document)


def _at(document: Any, way: Way) -> Any:
    for step in way:
        document = document[step]
    return document


def _change(document: Any, way: Way, random: Random, groups: list[list[Way]]) -> None:
    holder, last = _at(document, way[:-1]), way[-1]
    value, chance = holder[last], random.random()
    if chance < 0.4:
        holder[last] = random.choice(STRANGE)
    elif chance < 0.5:
        holder.pop(last)
    elif chance < 0.62:  # a part in the place of another
        holder[last] = json.loads(json.dumps(_at(document, random.choice(random.choice(groups)))))
    elif chance < 0.68:
        for _ in range(random.choice([2, 50, 300])):  # nested far more deeply than any honest one
            holder[last] = [holder[last]] if random.random() < 0.5 else {"type": "Sequence", str(last): holder[last]}
    elif isinstance(value, int) and not isinstance(value, bool):
        holder[last] = value + random.choice([-256, -4, -1, 1, 4, 256, 1 << 31])
    elif isinstance(value, list) and value:
        value.append(random.choice(value)) if chance < 0.85 else value.pop(random.randrange(len(value)))
    elif isinstance(value, str):
        at = random.randrange(len(value) + 1)
        holder[last] = value[:at] + random.choice(INSERTED) + value[at + random.randrange(2) :]
    elif isinstance(holder, list):
        holder.append(value)
