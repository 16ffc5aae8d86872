"""What a job over many rows costs: a section of docs/scale.md, from what `python -m tests.bulk PROOF --write` measured.

The job on paper is a sum of stated assumptions, of what was measured here in bytes and in seconds of a processor, and
of a device's published rate. No second of lavapipe's is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webpte.batch.on_ray import MIN_CHUNKS_PER_ACTOR

STORED = Path(__file__).with_name("bulk.json")
SECTION = Path(__file__).with_name("bulk_section.md")
SMALL = 1024  # rows of a block unless told


@dataclass(frozen=True)
class Line:
    """Seconds of a command: to begin with, and for each row."""

    start: float
    row: float

    @classmethod
    def through(cls, seconds: Mapping[int, float]) -> Line:
        """The fewest and the most rows that were measured."""
        few, many = min(seconds), max(seconds)
        row = (seconds[many] - seconds[few]) / (many - few)
        return cls(seconds[few] - row * few, row)

    def crosses(self, other: Line) -> float | None:
        """From how many rows on the other takes less; None if from none on."""
        return (other.start - self.start) / (self.row - other.row) if other.row < self.row else None


@dataclass(frozen=True)
class Paper:
    """A billion documents on a thousand GPUs: all that is assumed."""

    documents: int = 10**9
    devices: int = 1000
    tokens: int = 200  # of a document
    text: int = 1000  # bytes of a document
    dims: int = 384  # of a vector, and of MiniLM's layers
    layers: int = 6
    hidden: int = 1536
    teraflops: float = 13.7  # published of an Arc B580, in f32
    shares: tuple[float, float] = (0.15, 0.4)  # of it that kernels reach, as elsewhere on this page
    padding: float = 0.08
    block: int = 16384  # rows
    file: int = 10**9  # bytes
    footer: float = 0.02  # seconds to open a file on shared storage and read its footer
    receipt: int = 300  # bytes that tell the driver of a block
    model: int = 90_000_000  # bytes
    load: float = 10.0  # seconds until an actor has read and planned it

    @property
    def flops(self) -> float:
        """Of a document: products with weights, and with the other tokens in attention."""
        weights = self.layers * (4 * self.dims**2 + 2 * self.dims * self.hidden)
        attention = self.layers * 2 * self.dims * self.tokens
        return 2 * self.tokens * (weights + attention) / (1 - self.padding)

    def rates(self) -> tuple[float, float]:
        """Documents a second of a device: cautious and hopeful."""
        low, high = (share * self.teraflops * 1e12 / self.flops for share in self.shares)
        return low, high

    def seconds(self) -> tuple[float, float]:
        """Of the whole job: cautious and hopeful."""
        low, high = (self.documents / self.devices / rate for rate in self.rates())
        return low, high

    @property
    def blocks(self) -> int:
        return -(-self.documents // self.block)

    @property
    def stretch(self) -> int:
        """Rows that an actor takes at a time: whole blocks, and four stretches for each actor."""
        return max(1, self.blocks // (MIN_CHUNKS_PER_ACTOR * self.devices)) * self.block

    @property
    def files(self) -> int:
        return -(-self.documents * self.text // self.file)


def section() -> str:
    found = json.loads(STORED.read_text(encoding="utf-8"))
    return SECTION.read_text(encoding="utf-8").format(**measured(found), **on_paper(found, Paper()))


def measured(found: Mapping[str, Any]) -> dict[str, Any]:
    seconds = {int(rows): taken for rows, taken in found["crossover"]["seconds"].items()}
    one = Line.through({rows: taken["one process"] for rows, taken in seconds.items()})
    two = Line.through({rows: taken["two actors"] for rows, taken in seconds.items()})
    crossing = one.crosses(two)
    if crossing is None:
        raise SystemExit("two actors were not quicker for any number of rows: run python -m tests.bulk crossover again")
    many = max(found["shared"]["seconds"], key=int)
    table = [f"| {n:,} | {taken['one process']:.0f} | {taken['two actors']:.0f} |" for n, taken in seconds.items()]
    return {
        "embed": found["embed"],
        "hand": found["hand"],
        "crossover": "\n".join(table),
        "one": one,
        "two": two,
        "thousands": [1000 * line.row for line in (one, two)],
        "gain": one.row / two.row,
        "shared_rows": int(many),
        "shared": found["shared"]["seconds"][many],
        "rows": round(crossing, -1),
        "work": one.row * crossing,
        "extra": two.start - one.start,
    }


def on_paper(found: Mapping[str, Any], paper: Paper) -> dict[str, Any]:
    embed = found["embed"]
    vector = embed["bytes_out"] - embed["bytes_in"]  # of a row, as it is stored
    read, written = paper.documents * paper.text, paper.documents * (paper.text + vector)
    slow, fast = paper.seconds()
    low, high = paper.rates()
    return {
        "paper": paper,
        "gigaflop": paper.flops / 1e9,
        "low": low,
        "high": high,
        "slow": slow / 60,
        "fast": fast / 60,
        "vector": vector,
        "stretch": paper.stretch,
        "read": read / 1e12,
        "written": written / 1e12,
        "traffic": [(read + written) / taken / 1e9 for taken in (slow, fast)],
        "each": [(read + written) / taken / paper.devices / 1e6 for taken in (slow, fast)],
        "gigabyte": paper.file / 1e9,
        "megabytes": paper.model / 1e6,
        "models": 2 * paper.model * paper.devices / 1e9,
        "lost": [paper.block / rate for rate in (low, high)],
        "naming": round(found["names"]["rate"], -3),
        "names": paper.documents / paper.devices / found["names"]["rate"],
        "footer_milliseconds": 1e3 * paper.footer,
        "footers": 2 * paper.files * paper.footer,
        "receipts": paper.blocks * paper.receipt / 1e6,
        "small_blocks": -(-paper.documents // SMALL),
        "small_manifest": paper.documents / SMALL * paper.receipt / 1e6,
    }
