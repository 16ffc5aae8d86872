"""Where logits of a model with dynamic int8 rows differ from the executorch wheel's: at codes that a tie decides."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import webpte
from tests.studies.xnnpack.running import LLMS
from webpte.container import MappedFile, MethodPlan, find_ends
from webpte.debug.compare.executorch import Wheel
from webpte.graph import Call, Graph
from webpte.runtime import Program

PROGRAM = LLMS / "llama_halves_8da4w.pte"
PROMPT_TOKENS, STEPS = 9, 64
EQUAL = 1e-6  # of the largest value
Array = np.ndarray[Any, Any]


class Text(NamedTuple):
    """The calls of a prompt and the wheel's greedy tokens, with the wheel's results."""

    calls: list[tuple[Array, Array]]
    logits: list[Array]
    attention: list[Array]  # results of the first layer's attention, which the next call turns into codes


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with webpte.load(PROGRAM) as loaded:
        yield loaded


def attention_call(graph: Graph) -> Call:
    return next(call for call in graph.calls if call.name == "llama::custom_sdpa.out")


def wheel_until(call: Call, method: MethodPlan, copy: Path) -> Wheel:
    """Return the method of a copy of the program that ends after a call and returns its result.

    Its state is right for this result: no earlier call reads what a later one writes.
    """
    shutil.copyfile(PROGRAM, copy)
    with MappedFile(copy) as file:
        instructions, outputs = find_ends(file, method.name)
    with open(copy, "r+b") as changed:
        for position, numbers in ((instructions, (call.origin.instruction + 1,)), (outputs, (1, call.outs[0]))):
            changed.seek(position)
            changed.write(struct.pack(f"<{len(numbers)}I", *numbers))
    return Wheel(copy, [], method)


@pytest.fixture(scope="module")
def text(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Text:
    method = next(plan for plan in program.file.methods if plan.name == "forward")
    whole = Wheel(PROGRAM, [], method)
    until = wheel_until(attention_call(program.graph("forward")), method, tmp_path_factory.mktemp("cut") / "cut.pte")
    known = Text([], [], [])
    tokens, position = np.random.default_rng(0).integers(3, 100, (1, PROMPT_TOKENS)), 0
    for _ in range(STEPS + 1):
        call = (tokens, np.array([position]))
        known.calls.append(call)
        known.logits.append(whole.run(call)[0])
        known.attention.append(until.run(call)[0])
        position += tokens.shape[1]
        tokens = np.array([[known.logits[-1].argmax()]])
    return known


def gap(result: Any, expected: Array) -> float:
    return float(np.abs(np.asarray(result).reshape(expected.shape) - expected).max() / np.abs(expected).max())


def scaled(row: Array) -> Array:
    """Return a row in units of a code: the codes are the nearest integers, plus a zero point."""
    numbers = row.astype(np.float64).reshape(-1)
    return numbers * 255 / (max(numbers.max(), 0) - min(numbers.min(), 0))


def test_first_difference_of_logits_is_one_code_at_a_tie(program, text):
    """Both runtimes have the same tokens, and the same logits until one element lies on both sides of a tie."""
    method = program.method(
        "forward", lambda graph: replace(graph, outputs=(*graph.outputs, *attention_call(graph).outs))
    )
    for call, logits, attention in zip(*text, strict=True):
        own_logits, own_attention = method.run(call)
        assert own_logits.argmax() == logits.argmax()
        if gap(own_logits, logits) <= EQUAL:
            continue
        assert gap(own_attention, attention) <= EQUAL
        own, wheel = scaled(own_attention), scaled(attention)
        (flipped,) = np.nonzero(np.rint(own) != np.rint(wheel))
        assert len(flipped) == 1
        assert np.abs(np.rint(own) - np.rint(wheel)).max() == 1 and np.abs(own - wheel)[flipped] <= 1e-4
        return  # later steps read keys and values that this one has written


def test_logits_are_the_same_if_attention_is_that_of_the_wheel(program, text):
    """Nothing but the roundings in the first attention, below 1e-6, separates the logits of 65 steps."""

    def with_inputs(graph: Graph) -> Graph:
        call = attention_call(graph)
        unread = replace(call, outs=(len(graph.values),))
        steps = tuple(unread if step is call else step for step in graph.steps)
        values = (*graph.values, graph.values[call.outs[0]])
        return replace(graph, values=values, steps=steps, inputs=(*graph.inputs, *call.outs))

    method = program.method("forward", with_inputs)
    assert [gap(method(*call, attention), logits) <= EQUAL for call, logits, attention in zip(*text, strict=True)] == [
        True
    ] * (STEPS + 1)
