"""Indices and positions out of range on purpose: what lies outside a tensor is neither written nor read.

That no op does so with good ones is part of every case: see tests/support/harness/canaries.py.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import webpte
from tests.support.harness.canaries import Canaries, larger_buffers
from tests.support.harness.cases import OneOp, T, case, run_case
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType
from webpte.lowering import unregister

WILD = np.array([-(2**31), -(2**31) + 1, -(10**6), -12, 11, 12, 4096, 10**6, 2**31 - 1], np.int32)  # 11 rows are there
ROWS = 11


def table(*rest: int, dtype: str = "f32", **options) -> T:
    return T(ROWS, *rest, dtype=dtype, low=1, high=2, **options)


def wild(*dims: int) -> T:
    """Indices, at first good ones: what a reference can do with bad ones is nothing."""
    return T(*dims, dtype="i32", low=0, high=ROWS - 1)


def _codes(dims):
    return np.random.default_rng(0).integers(0, 256, dims)


PACKED = T(ROWS, 16, dtype="u8", make=_codes, constant=True)
SCALES = T(ROWS, 1, low=1, high=2, constant=True)
# A case and which of its tensors are the indices.
CHOSEN = {
    "embedding": (case("aten.embedding.default", table(5, constant=True), wild(9), -1, False, False), (1,)),
    "embedding of halves": (
        case("aten.embedding.default", table(5, dtype="f16", constant=True), wild(9), -1, False, False),
        (1,),
    ),
    "embedding_q4": (case("et_vk.embedding_q4gsw.default", PACKED, SCALES, 32, wild(9), True), (2,)),
    "index_select": (case("aten.index_select.default", table(5), 0, wild(9)), (1,)),
    "gather": (case("aten.gather.default", table(9), 0, wild(2, 9), False), (1,)),
    "index": (case("aten.index.Tensor", table(7), [wild(9)]), (1,)),
    "index by two": (case("aten.index.Tensor", T(ROWS, ROWS, low=1, high=2), [wild(9), wild(9)]), (1, 2)),
}


def _run(case, folder, inputs, **options):
    """Outputs of a case on given inputs, with canaries around all it touches."""
    OneOp(case).write(folder / "case.pte")
    with larger_buffers(), webpte.load(folder / "case.pte", **options) as program:
        method = program.method()
        canaries = Canaries(method)
        canaries.set_out()
        outputs = method.run(inputs)
        canaries.check(outputs, str(case))
    return outputs


@pytest.mark.parametrize("name", CHOSEN)
def test_indices_outside_choose_the_nearest_row(name, tmp_path, device, monkeypatch):
    """An index that is too low or too high must not reach another tensor's memory, also where no guard refuses it."""
    monkeypatch.setattr("webpte.plan.planner.add_guards", lambda *arguments: None)
    one, indices = CHOSEN[name]
    random = np.random.default_rng(5)
    arrays = [t.array({}, random) for t in one.tensors]
    assert len(indices) == sum(t.dtype == "i32" for t in one.tensors)

    def outputs(result):
        inputs = [result if i in indices else a for i, a in enumerate(arrays)]
        pairs = zip(inputs, one.tensors, strict=True)
        shaped = [np.broadcast_to(a, t.at({})).copy() for a, t in pairs if not t.constant]
        return _run(one, tmp_path, shaped)

    nearest = np.where(WILD < 0, 0, ROWS - 1).astype(np.int32)
    for got, want in zip(outputs(WILD), outputs(nearest), strict=True):
        assert np.isfinite(got.astype(np.float32)).all()
        np.testing.assert_array_equal(got, want)


def test_labels_outside_do_not_count_or_are_the_last(tmp_path, device):
    one = case("et_vk.fused_ce.default", T(9, 7), T(9, dtype="i32", low=0, high=6), 9.0)
    logits = np.random.default_rng(1).normal(size=(9, 7)).astype(np.float32)
    nearest = np.where(WILD < 0, -1, np.minimum(WILD, 6)).astype(np.int32)
    for got, want in zip(_run(one, tmp_path, [logits, WILD]), _run(one, tmp_path, [logits, nearest]), strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_array_equal(got, want)


# ---------------------------------------------------------------- positions that come from data


def _positioned(path, op: str) -> list[tuple[int, ...]]:
    """Return a program whose op takes a position from its last input; the dims of the others."""
    t = c.VkTensor
    cache, new, rows = (1, 8, 2, 4), (1, 3, 2, 4), (8, 5)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "update_cache.default": [new, cache],
        "sdpa_with_kv_cache.default": [new, new, new, cache, cache],
        "aten.select_copy.int": [rows],
        "aten.narrow_copy.default": [rows],
    }
    tensors = shapes[op]
    values = [*(t(DType.FLOAT32, dims) for dims in tensors), t(DType.INT32, (1,)), c.VkInt(0), c.VkSymInt(0)]
    at, zero, position = (len(values) - 3, len(values) - 2, len(values) - 1)
    inputs = list(range(len(tensors)))

    def add(value) -> int:
        values.append(value)
        return len(values) - 1

    if op == "sdpa_with_kv_cache.default":
        rest = [position, add(c.VkInt(3)), add(c.VkNull()), add(c.VkDouble(0.0)), add(c.VkBool(True)), add(c.VkNull())]
        out = add(t(DType.FLOAT32, new))
    elif op == "update_cache.default":
        rest, out = [position], add(t(DType.FLOAT32, (1,)))
    elif op == "aten.narrow_copy.default":
        rest, out = [position, add(c.VkInt(3))], add(t(DType.FLOAT32, (3, 5)))
    else:
        rest, out = [position], add(t(DType.FLOAT32, (5,)))
    dim = [] if "cache" in op else [zero]
    calls = [("et_vk.select_as_symint.default", [at, zero, zero, position]), (op, [*inputs, *dim, *rest, out])]
    simple_pte(path, values, calls, [*inputs, at], [out], [], dynamic=False)
    return tensors


POSITIONS = {
    "update_cache.default": (5, 6),
    "sdpa_with_kv_cache.default": (5, 6),
    "aten.select_copy.int": (7, 8),
    "aten.narrow_copy.default": (5, 6),
}


@pytest.mark.parametrize("op", POSITIONS)
def test_cache_position_out_of_range_refused_before_running(op, tmp_path, device):
    tensors = _positioned(tmp_path / "p.pte", op)
    last, first_bad = POSITIONS[op]
    random = np.random.default_rng(3)
    arrays = [random.normal(size=dims).astype(np.float32) for dims in tensors]
    with larger_buffers(), webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        canaries = Canaries(method)
        for bad in (first_bad, first_bad + 1, 10**6, 2**31 - 1, -9, -(2**31)):
            canaries.set_out()
            with raises(webpte.Error, bad) as caught:
                method.run([*arrays, np.array([bad], np.int32)])
            assert isinstance(caught.value, (webpte.ShapeError, webpte.GuardError))
            canaries.check([np.empty(0)], f"{op} at {bad}")
        for good in (last, 0):
            canaries.set_out()
            outputs = method.run([*arrays, np.array([good], np.int32)])
            canaries.check(outputs, f"{op} at {good}")
            assert np.isfinite(outputs[0]).all()


# ---------------------------------------------------------------- the canaries themselves

STRAY = """
from webpte.lowering import FLOATS, Context, Tensor, op


@op("toy.stray.default", dtypes=FLOATS)
def stray(cx: Context, x: Tensor, *, out: Tensor) -> None:
    out.dims = x.dims
    cx.dispatch("stray.wgsl", reads={"x": x}, writes={"y": out}, threads=x.numel)


@stray.reference
def _(x):
    return x + 1
"""
KERNEL = """{$ include "kernel.wgsl" $}
var<storage> x: array<f32>;
var<storage> y: array<f32>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    y[i] = x[READ] + 1.0;
    STRAY
}
"""
STRAYS = {
    "write behind the tensor": ("i", "if (i == 0u) { y[p.threads + 4u] = 3.0; }"),
    "write of a whole tile": ("i", "y[p.threads + i] = 3.0;"),
    "read behind it": ("select(i, p.threads + 8u, i == 0u)", ""),
    "read far behind": ("select(i, 4000000000u, i == 0u)", ""),
}


@pytest.mark.parametrize("stray", STRAYS)
def test_canaries_detect_stray_access(stray, tmp_path):
    read, write = STRAYS[stray]
    (tmp_path / "stray.py").write_text(STRAY)
    (tmp_path / "stray.wgsl").write_text(KERNEL.replace("READ", read).replace("STRAY", write))
    spec = importlib.util.spec_from_file_location("stray", tmp_path / "stray.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        for sizes in ((33,), (33, 20)):  # at the bound, and below it
            with pytest.raises(AssertionError, match="elements differ" if "read" in stray else "were written"):
                run_case(case("toy.stray.default", T("n"), n=sizes), tmp_path)
    finally:
        unregister(module.stray)
