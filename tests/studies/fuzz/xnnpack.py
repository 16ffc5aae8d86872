"""XNNPACK delegates that are wrong in structure and right as bytes: values and nodes changed one at a time."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np

from tests.studies.fuzz.mutations import FLOATS, SIZES
from tests.studies.xnnpack.nets import NETS
from tests.support.harness.writer import pte_bytes
from tests.support.harness.xnn_writer import xnn_blob, xnn_method, xnn_sample
from webpte.container import XnnNode, XnnQuant, XnnType, XnnValue

NUMBERS = [0, 1, 2, 3, 4, 7, 8, 64, 255, 65536, 2**31 - 1, 2**32 - 2]
TYPES = [type for type in XnnType]
Parts = tuple[list[XnnValue], list[XnnNode], list[np.ndarray]]


@functools.cache
def bases() -> tuple[Parts, ...]:
    nets = [net("f4") for net in NETS.values()]
    return (*((net.values, net.nodes, net.constants) for net in nets), xnn_sample())


def xnnpack_mutant(random: Random) -> bytes | None:
    """The bytes of a program around a changed delegate; None where a change cannot be written down."""
    values, nodes, constants = random.choice(bases())
    changed, steps = list(values), list(nodes)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        at = random.randrange(len(steps))
        choice = random.random()
        if choice < 0.4:
            index = random.randrange(len(changed))
            changed[index] = _value(random, changed[index], len(constants))
        elif choice < 0.8:
            steps[at] = _node(random, steps[at], len(changed))
        elif choice < 0.9:
            steps.insert(at, random.choice(steps))
        else:
            steps.pop(at)
        if not steps:
            break
    try:
        return pte_bytes([xnn_method(values, xnn_blob(changed, steps, constants))])
    except (struct.error, OverflowError, ValueError):
        return None


def _value(random: Random, value: XnnValue, constants: int) -> XnnValue:
    choice = random.random()
    if choice < 0.5:
        dims = list(value.dims)
        if dims and random.random() < 0.7:
            dims[random.randrange(len(dims))] = random.choice(SIZES)
        else:
            dims = [random.choice([1, 2, 3, 8]) for _ in range(random.randrange(7))]
        return replace(value, dims=tuple(dims))
    if choice < 0.65:
        return replace(value, type=random.choice(TYPES))
    if choice < 0.8:
        return replace(value, constant=random.randrange(constants + 1))
    kinds = [
        None,
        XnnQuant("tensor", (random.choice(FLOATS[:6]),), random.choice([-129, 0, 5, 2**31 - 1])),
        XnnQuant("channel", (0.5,) * random.randrange(5), channel_dim=random.choice([-1, 0, 3, 9])),
        XnnQuant("token", inner_dims=random.choice([-1, 0, 1, 3, 9])),
        XnnQuant("group", (0.5,) * random.randrange(5), group_size=random.choice([-1, 0, 1, 32, 64])),
    ]
    return replace(value, quant=random.choice(kinds))


def _node(random: Random, node: XnnNode, count: int) -> XnnNode:
    choice = random.random()
    if choice < 0.4:
        return replace(node, ids=_changed(random, node.ids, random.randrange(count)))
    if choice < 0.7 and node.numbers:
        return replace(node, numbers=_changed(random, node.numbers, random.choice(NUMBERS)))
    if node.lists:
        name = random.choice(list(node.lists))
        items = list(node.lists[name])
        if items and random.random() < 0.6:
            items[random.randrange(len(items))] = random.choice(NUMBERS)
        else:
            items = [random.choice([0, 1, 2, 3]) for _ in range(random.randrange(7))]
        return replace(node, lists={**node.lists, name: tuple(items)})
    return replace(node, factor=random.choice(FLOATS[:6]), clamp=(random.choice(FLOATS[:6]), random.choice(FLOATS[:6])))


def _changed(random: Random, items: Mapping[str, int], number: int) -> dict[str, int]:
    changed = dict(items)
    name = random.choice(list(changed))
    if random.random() < 0.15:
        del changed[name]
        if name in ("flags", "axis", "groups") or "_" in name or name == "num_dims":
            changed[name] = number
    else:
        changed[name] = number
    return changed
