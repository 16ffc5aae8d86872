"""Wrong calls of the runtime: each is refused by name, with what would be right, within a second; all still works."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.named import X, Y, named_pte
from tests.support.harness.wrong_calls import Wrong, check
from webpte.errors import ClosedError, Error, FormatError, InputError, UnsupportedError
from webpte.wgsl import Caps


class Things(NamedTuple):
    path: Any
    program: webpte.Program
    method: webpte.Method
    plan: webpte.SavedPlan
    face: Any
    folder: Any


class Row(NamedTuple):
    argument: str  # what the message names
    call: Callable[[Things], object]
    kind: type[Error] = InputError


def rows(argument: str, call: Callable[[Things, Any], object], values: Iterable[Any], kind: type[Error] = InputError):
    """Return a row for each wrong value."""
    return [
        Row(argument, functools.partial(lambda value, things: call(things, value), value), kind) for value in values
    ]


F64 = X.astype(np.float64)
FEW = np.zeros((2, 7), np.float32)
FORKED = webpte.CancelToken  # the class where an object is required
LOADING: list[Row] = [
    *rows("source", lambda t, v: webpte.load(v), [None, 3, 1.5, [], {}, object(), "", "a\0b", io.StringIO("text")]),
    *rows("source", lambda t, v: webpte.load(v), [b"", b"abc", bytearray(40), io.BytesIO(b"no program")], FormatError),
    *rows("missing", lambda t, v: webpte.load(v), ["missing.pte", "missing/model.pte"], FormatError),
    Row("not a regular file", lambda t: webpte.load(os.fspath(t.folder)), FormatError),
    *rows("data", lambda t, v: webpte.load(t.path, v), ["w.ptd", b"w", io.BytesIO(b"w"), 3, None, {"w.ptd": 1}]),
    *rows("data[0]", lambda t, v: webpte.load(t.path, [v]), [None, 3, object(), ""]),
    *rows("data[1]", lambda t, v: webpte.load(t.path, [t.path, v]), [None, 1.5]),
    *rows("fallback", lambda t, v: webpte.load(t.path, fallback=v), ["gpu", "CPU", True, 1, ["cpu"]]),
    *rows("tune", lambda t, v: webpte.load(t.path, tune=v), ["on", "cache", None, True, np.array(["off", "auto"])]),
    *rows("memory", lambda t, v: webpte.load(t.path, memory=v), [0, -1, 1.5, "1GB", True, float("inf")]),
    *rows("limits", lambda t, v: webpte.load(t.path, limits=v), [{"nope": 3}, ["max-buffer-size"], 3, "big", {1: 2}]),
    *rows("max-buffer-size", lambda t, v: webpte.load(t.path, limits={"max-buffer-size": v}), [0, -1, 1.5, "x", None]),
    *rows("passes", lambda t, v: webpte.load(t.path, passes=v), ["layouts", ["nonsense"], [3], 3, {"a": 1}]),
    *rows("progress", lambda t, v: webpte.load(t.path, progress=v), [None, 3, "bar", True]),
    *rows("cancel", lambda t, v: webpte.load(t.path, cancel=v), [True, 3, FORKED]),
]
PROGRAMS: list[Row] = [
    *rows("name", lambda t, v: t.program.method(v), ["forwad", "", 0, None, b"forward", ["forward"]]),
    *rows("name", lambda t, v: t.program.graph(v), ["backward", 3]),
    *rows("name", lambda t, v: t.program.plan(v), ["backward", None]),
    *rows("name", lambda t, v: t.program.memory(v), ["backward", 7]),
    *rows("name", lambda t, v: t.program.fingerprint(v), ["backward", 7]),
    *rows("rewrite", lambda t, v: t.program.method(rewrite=v), [3, "graph", []]),
    *rows("rewrite", lambda t, v: t.program.memory("forward", v), [3, []]),
    Row("rewrite", lambda t: t.program.memory(rewrite=lambda graph: graph)),  # type: ignore[call-overload]
    *rows("caps", lambda t, v: t.program.plan("forward", v), [3, {}, Caps]),
    *rows("progress", lambda t, v: t.program.method(progress=v), [None, 1]),
    *rows("cancel", lambda t, v: t.program.method(cancel=v), ["now", 1]),
    *rows("budget", lambda t, v: t.program.tune(budget=v), [0, -1.0, float("nan"), float("inf"), "5", True]),
    *rows("again", lambda t, v: t.program.tune(again=v), [1, "yes", None]),
    *rows("progress", lambda t, v: t.program.recover(progress=v), [None, 2]),
    *rows("file", lambda t, v: webpte.show_versions(v), [3, "versions.txt"]),
    *rows("source", lambda t, v: webpte.widget(v), [None, 3, ""]),
    Row("nonsense", lambda t: t.program.show(nonsense=1)),
]
CALLS: list[Row] = [
    *rows("2 inputs", lambda t, v: t.method(*v), [(), (X,), (X, Y, X)]),
    *rows("input 0 ('x')", lambda t, v: t.method(v, Y), [None, "x", F64, X[0], np.zeros((6, 7), np.float32), object()]),
    *rows(
        "input 1 ('y')", lambda t, v: t.method(X, v), [[[1j]], np.array(["a"]), np.zeros((5, 0), np.float32), {1, 2}]
    ),
    *rows("input 0 ('x')", lambda t, v: t.method(v, Y), [[[1.0], [2.0, 3.0]], {"x": 1}, X.astype(np.complex64), 1.0]),
    Row("'z'", lambda t: t.method(X, z=Y)),
    Row("'x'", lambda t: t.method(X, x=X)),
    Row("'y'", lambda t: t.method(x=X)),
    *rows("args", lambda t, v: t.method.run(v), [X, 3, None, "xy", {1, 2}, iter([X, Y])]),
    *rows(
        "outputs", lambda t, v: t.method.run([X, Y], outputs=v), [5, "sum", [5], [-3], ["som"], [None], [0.0], [True]]
    ),
    *rows("into", lambda t, v: t.method.run([X, Y], into=v), [3, X.copy(), [X.copy()], "ab", {}]),
    *rows("into[0]", lambda t, v: t.method.run([X, Y], outputs=[0], into=[v]), [None, F64, X.T, X[:2], [0.0]]),
    *rows("strict", lambda t, v: t.method.run([X, Y], strict=v), [1, "yes", None]),
    *rows("feed", lambda t, v: t.method.run_steps([[X, Y]], v, [0]), [None, 3, [0]]),
    *rows("position", lambda t, v: t.method.run_steps([[X, Y]], v, [0]), [{5: 0}, {0: 9}, {"a": 0}, {0: None}]),
    *rows("steps", lambda t, v: t.method.run_steps(v, {}, [0]), [3, None, X, [X], [3], ["ab"]]),
    *rows("outputs", lambda t, v: t.method.run_steps([[X, Y]], {}, v), [None, 3, "sum", [7]]),
]
FILES: list[Row] = [
    *rows("path", lambda t, v: t.method.snapshot(v), [None, 3, "", b"state", "a\0b"]),
    *rows("missing", lambda t, v: t.method.snapshot(t.folder / v), ["missing/state"]),
    *rows("note", lambda t, v: t.method.snapshot(t.folder / "state", v), ["text", None, 3]),
    *rows("path", lambda t, v: t.method.restore(v), [None, 3, ""]),
    *rows("missing", lambda t, v: t.method.restore(t.folder / v), ["missing"], FormatError),
    Row("p.pte", lambda t: t.method.restore(t.path), FormatError),
    *rows("accept", lambda t, v: t.method.restore(t.folder / "good", v), [None, 3]),
    *rows("folder", lambda t, v: t.method.save(v), [None, 3, "", b"plan"]),
    *rows(
        "shapes",
        lambda t, v: t.method.save(t.folder / "new", v),
        [3, "55", [3], [[3]], [[(-1,), (1,)]], [[("a",), ()]]],
    ),
    *rows("shapes", lambda t, v: t.method.save(t.folder / "new", v), [[[(5, 7)]], None]),
    *rows("folder", lambda t, v: webpte.open_plan(v), [None, 3, "", b"plan"]),
    *rows("missing", lambda t, v: webpte.open_plan(t.folder / v), ["missing"]),
    *rows("data", lambda t, v: webpte.open_plan(t.folder / "plan", v), ["p.pte", 3, None, b"x"]),
    *rows("data[0]", lambda t, v: webpte.open_plan(t.folder / "plan", [v]), [3, None, ""]),
    *rows("memory", lambda t, v: webpte.open_plan(t.folder / "plan", [t.path], memory=v), [0, "1", True]),
    *rows("progress", lambda t, v: t.plan.method(progress=v), [None, 3]),
    *rows("program", lambda t, v: webpte.bundle(v, t.folder / "site"), [None, "p.pte", 3]),
    *rows("path", lambda t, v: webpte.bundle(t.program, v), [None, 3, ""]),
    *rows("sequences", lambda t, v: webpte.bundle(t.program, t.folder / "site", sequences=v), [0, 17, "4", None]),
    *rows("shapes", lambda t, v: webpte.bundle(t.program, t.folder / "site", shapes=v), [3, {"forward": 3}, {1: []}]),
    *rows("mean", lambda t, v: webpte.bundle(t.program, t.folder / "site", mean=v), [0.5, ["a"], "abc"]),
    *rows("tokenizer", lambda t, v: webpte.bundle(t.program, t.folder / "site", tokenizer=v), [3, ["x"]]),
]
FACE: list[Row] = [
    *rows("data", lambda t, v: webpte.Runtime.get().load_program(v), [None, 3, []]),
    *rows("verification", lambda t, v: webpte.Runtime.get().load_program(t.path, verification=v), [None, 1, "Minimal"]),
    *rows("data_path", lambda t, v: webpte.Runtime.get().load_program(t.path, data_path=v), [3, ["w.ptd"], ""]),
    *rows("debug_buffer_size", lambda t, v: webpte.Runtime.get().load_program(t.path, debug_buffer_size=v), [-1, "1"]),
    *rows("enable_etdump", lambda t, v: webpte.Runtime.get().load_program(t.path, enable_etdump=v), [1, None]),
    Row("enable_etdump", lambda t: webpte.Runtime.get().load_program(t.path, enable_etdump=True), UnsupportedError),
    *rows("name", lambda t, v: t.face.load_method(v), ["backward", 3]),
    *rows("method_name", lambda t, v: t.face.metadata(v), ["backward", None]),
    *rows("index", lambda t, v: t.face.metadata("forward").input_tensor_meta(v), [2, -1, "x", None]),
    Row("index 0", lambda t: t.face.metadata("get_size").output_tensor_meta(0)),
    *rows("inputs", lambda t, v: t.face.load_method("forward").execute(v), [None, 3, X, [X]]),
]
TABLE = [*LOADING, *PROGRAMS, *CALLS, *FILES, *FACE]


@pytest.fixture(scope="module")
def things(tmp_path_factory) -> Iterator[Things]:
    folder = tmp_path_factory.mktemp("things")
    path = named_pte(folder / "p.pte")
    with webpte.load(path) as program:
        method = program.method()
        method.save(folder / "plan", [(X.shape, Y.shape)])
        method.snapshot(folder / "good")
        face = webpte.Runtime.get().load_program(path)
        with webpte.open_plan(folder / "plan", [path]) as plan, face._program:
            yield Things(path, program, method, plan, face, folder)


def test_wrong_calls_table_is_long():
    assert len(TABLE) >= 120


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{n}-{row.argument}") for n, row in enumerate(TABLE)])
def test_wrong_call_error_names_argument(row, things):
    check(Wrong(lambda: row.call(things), row.argument, row.kind))
    things.method.reset()
    total, product = things.method(X, Y)
    assert np.array_equal(total, X + Y) and np.array_equal(product, X * Y)


def test_closed_objects_raise_closed_error(tmp_path):
    program = webpte.load(named_pte(tmp_path / "p.pte"))
    method = program.method()
    program.close()
    for call in (lambda: method(X, Y), method.reset, method.fork, program.method, program.recover, program.tune):
        with raises(ClosedError):
            call()
