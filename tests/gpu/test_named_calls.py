"""Inputs by position, keyword or mapping; outputs by position or name, or into given arrays; and no CPU where none is
wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import webpte
from tests.gpu.test_fallback import unsupported  # noqa: F401
from tests.support.harness.counting import counting_pte
from tests.support.harness.errors import check, raises
from tests.support.harness.named import BOUND, X, Y, named_pte


@pytest.fixture
def forward(tmp_path):
    with webpte.load(named_pte(tmp_path / "named.pte")) as program:
        yield program.method()


def test_argument_names_come_from_the_file_or_are_numbers(forward, tmp_path):
    assert [info.name for info in forward.inputs] == ["x", "y"]
    assert [info.name for info in forward.outputs] == ["sum", "out1"]
    with webpte.load(counting_pte(tmp_path / "c.pte")) as program:
        assert [info.name for info in program.method().inputs] == ["in0"]
        assert (program.method()(in0=np.ones((5, 7), np.float32)) == 2).all()


def test_inputs_by_position_keyword_and_mapping(forward):
    calls = [
        lambda: forward(X, Y),
        lambda: forward(X, y=Y),
        lambda: forward(y=Y, x=X),
        lambda: forward.run([X, Y]),
        lambda: forward.run({"y": Y, "x": X}),
    ]
    for number, call in enumerate(calls):
        total, product = call()
        assert np.array_equal(total, X + Y + number) and np.array_equal(product, X * Y)


@pytest.mark.parametrize(
    ("call", "code", "values"),
    [
        (lambda m: m(X), "input_count", ["2 inputs (x: f32[<=5, <=7], y: f32[<=5, <=7]), got 1"]),
        (lambda m: m(X, z=Y), "unknown_input", ["'z'", "x: f32[<=5, <=7], y: f32[<=5, <=7]"]),
        (lambda m: m(X, xx=Y), "unknown_input", ["'xx'", "'x'?"]),
        (lambda m: m(X, x=X), "duplicate_input", ["'x'"]),
        (lambda m: m(x=X), "missing_input", ["'y'"]),
        (lambda m: m(X, Y, Y, y=Y), "input_count", ["2 inputs (x: f32[<=5, <=7], y: f32[<=5, <=7]), got 4"]),
        (lambda m: m.run({"x": X}), "missing_input", ["'y'"]),
        (lambda m: m.run({0: X, 1: Y}), "unknown_input", ["got 0"]),
        (lambda m: m.run(X), None, ["args", "2 inputs of forward", "ndarray", "[x]"]),
        (lambda m: m.run("xy"), None, ["args", "2 inputs of forward", "'xy'"]),
        (lambda m: m(X, Y[0]), "rank", ["input 1 ('y') of forward", "shape [7]", "f32[<=5, <=7]"]),
        (lambda m: m(X, None), "not_numeric", ["input 1 ('y') of forward", "None", "float32"]),
    ],
)
def test_call_wrong_names_raise_and_change_nothing(forward, call, code, values):
    with raises(webpte.InputError, *values, code=code):
        call(forward)
    assert np.array_equal(forward(X, Y)[0], X + Y)  # the first call that counted


def test_outputs_by_position_or_name(forward):
    assert [a.tolist() for a in forward.run([X, Y], outputs=["out1"])] == [(X * Y).tolist()]
    product, total = forward.run([X, Y], outputs=[1, "sum"])
    assert np.array_equal(product, X * Y) and np.array_equal(total, X + Y + 1)
    assert forward.run([X, Y], outputs=()) == ()
    refused: list[tuple[Any, str | None, list]] = [
        (["som"], "unknown_output", ["'som'", "'sum'?"]),
        ("sum", None, ["outputs", "'sum'"]),
        (0, None, ["outputs", "[0]"]),
        ([2], "position", [2, "2 outputs of forward"]),
    ]
    for wrong, code, values in refused:
        with raises(webpte.InputError, *values, code=code):
            forward.run([X, Y], outputs=wrong)


@pytest.mark.parametrize("rows", [5, 2])
def test_outputs_are_written_into_arrays_of_the_caller(forward, rows):
    shape = (rows, 7)
    total, product = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    inputs = forward.run([X[:rows], Y[:rows]], into=[total, product])
    assert inputs[0] is total and inputs[1] is product
    assert np.array_equal(total, (X + Y)[:rows]) and np.array_equal(product, (X * Y)[:rows])
    (again,) = forward.run([X[:rows], Y[:rows]], outputs=["sum"], into=(total,))
    assert again is total and np.array_equal(total, (X + Y)[:rows] + 1)


def empty(shape=BOUND, dtype=np.float32):
    return np.empty(shape, dtype)


def read_only():
    array = empty()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("into", "code", "values"),
    [
        (empty(), None, ["into", "ndarray"]),
        ([empty()], "output_count", ["into", "2 arrays", "got 1"]),
        ([empty(), empty((4, 7))], "shape", ["into[1]", "[4, 7]", "[5, 7]"]),
        ([empty(dtype=np.float64), empty()], "dtype", ["into[0]", "float64", "float32"]),
        ([empty((7, 5)).T, empty()], "not_contiguous", ["into[0]"]),
        ([empty(), read_only()], "read_only", ["into[1]"]),
        ([empty(), [[0.0]]], None, ["into[1]", "float32", "list"]),
        ([X, X], "duplicate_array", ["into"]),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_anything_runs(forward, into, code, values):
    with raises(webpte.InputError, *values, code=code):
        forward.run([X, Y], into=into)
    assert np.array_equal(forward(X, Y)[0], X + Y)  # the state has not counted


def test_call_into_integer_output_raises(tmp_path):
    with webpte.load(named_pte(tmp_path / "p.pte")) as program:
        size = program.method("get_size")
        assert size() == 7 and size.outputs[0].kind == "int"
        with raises(webpte.InputError, "into[0]", "get_size", code="not_a_tensor"):
            size.run([], into=[empty()])


def test_strict_refuses_cpu_kernels_and_names_them(unsupported, forward):  # noqa: F811
    assert np.array_equal(forward.run([X, Y], strict=True)[0], X + Y)
    with webpte.load(unsupported, fallback="cpu") as program:
        method, x = program.method(), np.zeros((3, 7), np.float32)
        with pytest.raises(webpte.UnsupportedError) as caught:
            method.run([x], strict=True)
        check(caught.value, "test.sin_degrees.default x1", code="cpu_kernels")
        assert caught.value.items == ("test.sin_degrees.default",)
        assert method.run([x])[0].shape == (3, 7)


def test_names_survive_a_saved_plan(forward, tmp_path):
    forward(X, Y)
    forward.save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan", [tmp_path / "named.pte"]) as plan:
        method = plan.method()
        assert [info.name for info in (*method.inputs, *method.outputs)] == ["x", "y", "sum", "out1"]
        assert np.array_equal(method(y=Y, x=X)[0], X + Y)


def test_argument_names_ambiguous_or_untypable_become_numbers():
    from webpte.graph import Graph, Int
    from webpte.runtime.arguments import argument_names

    graph = Graph("g", (Int(0), Int(1)), (), (0, 1), (), names={0: "a", 1: "a"})
    assert argument_names(graph, (0, 1), "in") == ("in0", "in1")
    assert argument_names(Graph("g", (), (), (), (), names={0: "in1"}), (0, 1), "in") == ("in0", "in1")
    assert argument_names(Graph("g", (), (), (), (), names={1: "b"}), (0, 1), "in") == ("in0", "b")
