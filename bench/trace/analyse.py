"""Compute the figures of a trace: segments, banks and rereads. The package's docstring defines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .run import Trace

Array = np.ndarray[Any, Any]
Direction = Literal["load", "store"]

SEGMENT_BYTES = 64
BANKS = 32
BANK_BYTES = 4
SUBGROUPS = (32, 64)  # invocations


@dataclass(frozen=True)
class SubgroupFigures:
    """Figures of the instructions of subgroups of one size."""

    instructions: int
    active: float  # share of the invocations that take part in them
    share: float  # of the bytes of the segments touched
    segments: float  # touched, relative to the minimum
    degree: int  # largest number of distinct words in one bank
    conflicts: float  # sum of the degrees, relative to the minimum
    ways: float  # the largest degree relative to the minimum of its instruction


@dataclass(frozen=True)
class Figures:
    """Figures of the loads or the stores of a variable, or of one of its access sites."""

    variable: str
    space: str
    direction: Direction
    site: str  # line and text; empty for all sites of the variable
    accesses: int
    requested: int  # bytes
    unique: int  # bytes
    by_subgroup: dict[int, SubgroupFigures]
    use: float
    rereads: float
    cached: float
    across: float


def by_variable(trace: Trace) -> list[Figures]:
    """Return the figures of each variable, loads and stores apart."""
    names = dict.fromkeys(site.variable.name for site in trace.sites)
    groups = [[i for i, site in enumerate(trace.sites) if site.variable.name == name] for name in names]
    return _figures(trace, groups, labels=[""] * len(groups))


def by_site(trace: Trace) -> list[Figures]:
    """Return the figures of each access site."""
    labels = [f"{site.line}: {site.text}" for site in trace.sites]
    return _figures(trace, [[i] for i in range(len(trace.sites))], labels)


def _figures(trace: Trace, groups: Sequence[Sequence[int]], labels: Sequence[str]) -> list[Figures]:
    figures = []
    for group, label in zip(groups, labels, strict=True):
        for direction in ("load", "store"):
            sites = [i for i in group if trace.sites[i].kind in (direction, "both")]
            records = trace.records[np.isin(trace.records["site"], sites)]
            if len(records):
                figures.append(_measure(trace, records, direction, label))
    return figures


def _measure(trace: Trace, records: Array, direction: Direction, label: str) -> Figures:
    variable = trace.sites[int(records["site"][0])].variable
    nbytes = np.array([site.nbytes for site in trace.sites])[records["site"]]
    address = records["address"].astype(np.int64)
    grain = 2 if np.any(address % 4) or np.any(nbytes % 4) else 4  # bytes; the unit of what follows
    counts = nbytes // grain
    owner = np.repeat(np.arange(len(records)), counts)
    grains = address[owner] // grain + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    group = records["group"].astype(np.int64)[owner]
    in_groups = len(_distinct(group, grains)[0]) * grain
    # Each workgroup has its own workgroup memory, so none reads what another has read.
    unique = in_groups if variable.space == "workgroup" else len(np.unique(grains)) * grain
    by_subgroup = {width: _subgroups(records, owner, grains, grain, width) for width in SUBGROUPS}
    merged = _merged_bytes(records, owner, grains, grain)
    segments = len(np.unique(grains // (SEGMENT_BYTES // grain)))
    return Figures(
        variable.name,
        variable.space,
        direction,
        label,
        len(records),
        int(nbytes.sum()),
        unique,
        by_subgroup,
        len(np.unique(grains)) * grain / (segments * SEGMENT_BYTES),
        nbytes.sum() / in_groups,
        merged / in_groups,
        in_groups / unique,
    )


def _instructions(records: Array, width: int) -> Array:
    """Return the number of the instruction of each record: accesses that a subgroup executes together."""
    keys = [records["group"], records["site"], records["local"] // width, records["number"]]
    number = np.zeros(len(records), np.int64)
    for key in keys:
        number = number * (int(key.max()) + 1) + key
    return np.unique(number, return_inverse=True)[1]


def _merged_bytes(records: Array, owner: Array, grains: Array, grain: int) -> int:
    return len(_distinct(_instructions(records, SUBGROUPS[0])[owner], grains)[0]) * grain


def _subgroups(records: Array, owner: Array, grains: Array, grain: int, width: int) -> SubgroupFigures:
    instruction = _instructions(records, width)
    count = int(instruction.max()) + 1
    keys, distinct = _distinct(instruction[owner], grains)
    used = np.bincount(keys, minlength=count) * grain
    segments = len(_distinct(keys, distinct // (SEGMENT_BYTES // grain))[0])
    least = -(-used // SEGMENT_BYTES)
    keys, words = _distinct(keys, distinct * grain // BANK_BYTES)
    least_degree = -(-np.bincount(keys, minlength=count) // BANKS)
    in_bank = np.bincount(keys * BANKS + words % BANKS, minlength=count * BANKS).reshape(count, BANKS)
    degree = in_bank.max(1)
    return SubgroupFigures(
        count,
        len(records) / (count * width),
        float(used.sum() / (segments * SEGMENT_BYTES)),
        float(segments / least.sum()),
        int(degree.max()),
        float(degree.sum() / least_degree.sum()),
        float((degree / least_degree).max()),
    )


def _distinct(first: Array, second: Array) -> tuple[Array, Array]:
    """Return the distinct pairs of two arrays of numbers."""
    base = int(second.max()) + 1
    pairs = np.unique(first.astype(np.int64) * base + second)
    return pairs // base, pairs % base
