"""Constants, prepack and what happens when a file lies: typed errors that name value and numbers."""

from __future__ import annotations

import gc
import hashlib
import math

import numpy as np
import pytest
import wgpu

import webpte
from tests.support.harness.errors import check, raises
from tests.support.harness.writer import ALONE, DelegateBlob, Method, ptd_file, pte_file, simple_pte, span_of, vk_blob
from webpte import container as c
from webpte.container import DType, VkInt, VkTensor, VkValueList

F32 = DType.FLOAT32
W = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)


def add_program(path, weights=W, **options):
    """forward(x) = x + prepack(w)"""
    values = [
        VkTensor(F32, (5, 7)),
        VkTensor(F32, (5, 7), constant_id=0),
        VkTensor(F32, (5, 7)),
        VkInt(1),
        VkTensor(F32, (5, 7)),
    ]
    calls = [("et_vk.prepack.default", (1, 2)), ("aten.add.Tensor", (0, 2, 3, 4))]
    return simple_pte(path, values, calls, inputs=[0], outputs=[4], constants=[weights], **options)


@pytest.fixture
def x():
    return np.arange(35, dtype=np.float32).reshape(5, 7)


@pytest.mark.parametrize("where", ["named", "inline"])
def test_prepack_fills_the_consumers_buffer(tmp_path, x, device, where):
    add_program(tmp_path / "p.pte", where=where)
    before = device.counters.snapshot()
    with webpte.load(tmp_path / "p.pte") as program:
        assert np.array_equal(program.method()(x), x + W)
        assert device.counters.since(before).constant_bytes == -(-W.nbytes // 4) * 4


@pytest.mark.parametrize("lazy", [False, True])
def test_lazy_method_compiles_with_its_first_call(tmp_path, device, lazy):
    width = 1009 + lazy  # of its own: kernels are shared by all methods of a device
    values = [VkTensor(F32, (1, width)), VkTensor(F32, (1, width))]
    simple_pte(tmp_path / "p.pte", values, [("aten.sin.default", (0, 1))], inputs=[0], outputs=[1])
    x = np.linspace(-1, 1, width, dtype=np.float32).reshape(1, width)
    with webpte.load(tmp_path / "p.pte") as program:
        before = device.counters.snapshot()
        method = program.method(lazy=lazy)
        assert (device.counters.since(before).bind_groups == 0) == lazy
        loaded = device.counters.snapshot()
        assert np.allclose(method(x), np.sin(x), rtol=1e-5)
        assert (device.counters.since(loaded).bind_groups > 0) == lazy
    with raises(webpte.InputError, "lazy"), webpte.load(tmp_path / "p.pte") as program:
        program.method(lazy=1)  # type: ignore[arg-type]


def test_constants_in_a_ptd(tmp_path, x):
    keyed = add_program(tmp_path / "p.pte", where="external")
    ptd_file(tmp_path / "w.ptd", keyed)
    with webpte.load(tmp_path / "p.pte", data=[tmp_path / "w.ptd"]) as program:
        assert np.array_equal(program.method()(x), x + W)


def test_adapters_in_ptd_files_give_the_results_of_merged_weights(tmp_path):
    """One program y = W x + 2 B (A x), whose constants have names; W is in the file that both adapters share."""
    rng = np.random.default_rng(3)

    def random(*dims):
        return rng.standard_normal(dims, np.float32)

    sizes = {"w": (20, 12), "lora_a": (4, 12), "lora_b": (20, 4)}
    shapes = [(5, 12), *sizes.values(), (5, 20), (5, 4), (5, 20), (5, 20)]
    tensors = [VkTensor(F32, dims, constant_id=n - 1 if 1 <= n <= 3 else -1) for n, dims in enumerate(shapes)]
    calls = [
        ("aten.linear.default", (0, 1, 9, 4)),
        ("aten.linear.default", (0, 2, 9, 5)),
        ("aten.linear.default", (5, 3, 9, 6)),
        ("aten.add.Tensor", (4, 6, 8, 7)),
    ]
    constants = [c.VkConstant(None, name, 4 * math.prod(dims)) for name, dims in sizes.items()]
    blob = vk_blob([*tensors, VkInt(2), c.VkNull()], calls, [0], [7], constants)
    borders = [c.TensorValue(F32, dims, (0, 1), place=ALONE) for dims in ((5, 12), (5, 20))]
    run = [c.DelegateCall(0, (0, 1))]
    pte_file(tmp_path / "p.pte", [Method("forward", borders, [0], [1], run, [DelegateBlob(blob)])])
    x, w = random(5, 12), random(20, 12)
    ptd_file(tmp_path / "foundation.ptd", {"w": w})
    for name in ("poet", "clerk"):
        a, b = random(4, 12), random(20, 4)
        ptd_file(tmp_path / f"{name}.ptd", {"lora_a": a, "lora_b": b})
        with webpte.load(tmp_path / "p.pte", data=[tmp_path / "foundation.ptd", tmp_path / f"{name}.ptd"]) as program:
            merged = x @ (w + 2 * b @ a).T
            np.testing.assert_allclose(program.method()(x), merged, rtol=0, atol=1e-5 * abs(merged).max())
    with raises(webpte.DataError, "lora_a", "lora_b", code="missing_constant"):
        webpte.load(tmp_path / "p.pte", data=[tmp_path / "foundation.ptd"])


def test_missing_ptd_names_every_key(tmp_path):
    (key,) = add_program(tmp_path / "p.pte", where="external")
    with pytest.raises(webpte.DataError) as caught:
        webpte.load(tmp_path / "p.pte")
    check(caught.value, key, "value 1 f32[5, 7]", "data=['weights.ptd']")
    assert caught.value.keys == (key,)


def test_load_constant_id_without_entry_raises(tmp_path):
    values = [VkTensor(F32, (5, 7), constant_id=3), VkTensor(F32, (5, 7))]
    simple_pte(tmp_path / "p.pte", values, [("et_vk.prepack.default", (0, 1))], inputs=[], outputs=[1], constants=[W])
    with raises(webpte.FormatError, "values[0]", "constant 3", "1"):
        webpte.load(tmp_path / "p.pte")


def test_load_truncated_segment_raises(tmp_path):
    add_program(tmp_path / "p.pte")
    whole = (tmp_path / "p.pte").read_bytes()
    (tmp_path / "cut.pte").write_bytes(whole[:-50])
    with raises(webpte.FormatError, "cut.pte", len(whole), len(whole) - 50, code="truncated"):
        webpte.load(tmp_path / "cut.pte")


def test_load_constant_of_wrong_size_raises(tmp_path):
    add_program(tmp_path / "p.pte", weights=W[:4])
    with raises(webpte.FormatError, "values[1]", "140 bytes", "112"):
        webpte.load(tmp_path / "p.pte")


@pytest.mark.parametrize(
    ("out", "shown"),
    [(VkTensor(DType.INT32, (5, 7)), "value 0 i32[5, 7]"), (VkTensor(F32, (7, 5)), "value 0 f32[7, 5]")],
)
def test_prepack_checks_both_sides_before_it_moves_a_byte(tmp_path, device, out, shown):
    values = [VkTensor(F32, (5, 7), constant_id=0), out]
    simple_pte(tmp_path / "p.pte", values, [("et_vk.prepack.default", (0, 1))], inputs=[], outputs=[1], constants=[W])
    before = device.counters.snapshot()
    with webpte.load(tmp_path / "p.pte") as program, raises(webpte.DataError, "f32[5, 7]", shown, code="mismatch"):
        program.method()
    assert device.counters.since(before).constant_bytes == 0


def test_load_prepack_of_non_constant_raises(tmp_path):
    values = [VkTensor(F32, (5, 7)), VkTensor(F32, (5, 7))]
    simple_pte(tmp_path / "p.pte", values, [("et_vk.prepack.default", (0, 1))], inputs=[0], outputs=[1])
    with webpte.load(tmp_path / "p.pte") as program, raises(webpte.DataError, "f32[5, 7]", code="no_constant"):
        program.method()


def test_equal_constants_share_a_buffer_unless_one_is_written(tmp_path):
    """Caches of zeros carry one key; each must be a buffer of its own."""
    cache = np.zeros((1, 8, 1, 4), np.float32)
    values = [
        VkTensor(F32, (1, 2, 1, 4)),  # q, k and v
        VkTensor(F32, (1, 8, 1, 4), constant_id=0),
        VkTensor(F32, (1, 8, 1, 4), constant_id=0),
        VkInt(0),
        VkInt(1),
        c.VkNull(),
        c.VkBool(True),
        VkTensor(F32, (1, 2, 1, 4)),
    ]
    call = ("sdpa_with_kv_cache.default", (0, 0, 0, 1, 2, 3, 4, 5, 3, 6, 5, 7))
    simple_pte(tmp_path / "p.pte", values, [call], inputs=[0], outputs=[7], constants=[cache])
    with webpte.load(tmp_path / "p.pte") as program:
        kinds = [b.kind for b in program.plan().buffers]
        assert kinds.count("state") == 2 and "constant" not in kinds
        assert np.isfinite(program.method()(np.ones((1, 2, 1, 4), np.float32))).all()


def test_mutable_data_and_constants_of_the_program_itself(tmp_path, x):
    """Tensors outside delegates: a constant of another width, and a buffer that a kernel call overwrites."""
    wide = (np.arange(35) - 17).reshape(5, 7)
    values = [
        c.TensorValue(DType.INT64, (5, 7), (0, 1), place=ALONE),
        c.TensorValue(DType.INT64, (5, 7), (0, 1), data=span_of(wide)),
        c.IntValue(1),
        c.TensorValue(DType.INT64, (5, 7), (0, 1), place=ALONE),
        c.TensorValue(DType.INT64, (5, 7), (0, 1), data=span_of(wide * 2), place=ALONE),
        c.BoolValue(False),
        c.TensorValue(DType.INT64, (5, 7), (0, 1), place=ALONE),
    ]
    instructions = [
        c.KernelCall("aten::add.out", (0, 1, 2, 3, 3)),
        c.KernelCall("aten::add.out", (4, 0, 2, 6, 6)),
        c.KernelCall("aten::copy_", (4, 6, 5, 4)),
    ]
    pte_file(tmp_path / "p.pte", [Method(values=values, inputs=[0], outputs=[3, 4], instructions=instructions)])
    inputs = np.full((5, 7), 1000)
    with webpte.load(tmp_path / "p.pte") as program:
        forward = program.method()
        for turn in (1, 2):
            total, state = forward(inputs)
            assert np.array_equal(total, inputs + wide)
            assert np.array_equal(state, wide * 2 + turn * inputs)
        forward.reset()
        assert np.array_equal(forward(inputs)[1], wide * 2 + inputs)


def test_buffer_without_data_starts_at_zero_and_keeps_state(tmp_path):
    """What ExecuTorch emits for a mutated buffer outside delegates: memory that is read before it is written."""
    tensor = c.TensorValue(F32, (3,), (0,), place=ALONE)
    values = [tensor, tensor, c.IntValue(1), tensor, c.BoolValue(False)]
    instructions = [
        c.KernelCall("aten::add.out", (1, 0, 2, 3, 3)),
        c.KernelCall("aten::copy_", (1, 3, 4, 1)),
    ]
    pte_file(tmp_path / "p.pte", [Method(values=values, inputs=[0], outputs=[3], instructions=instructions)])
    x = np.array([1, 2, 3], np.float32)
    with webpte.load(tmp_path / "p.pte") as program:
        forward = program.method()
        assert [forward(x)[0] for _ in range(3)] == [1, 2, 3]
        forward.reset()
        assert np.array_equal(forward(x), x)


def live_objects():
    gc.collect()
    report = wgpu.diagnostics.object_counts.get_dict()
    return {kind: counts["count"] for kind, counts in report.items() if isinstance(counts, dict) and "count" in counts}


def test_load_and_close_20_times_leaks_nothing(tmp_path, x, device):
    add_program(tmp_path / "p.pte")

    def once():
        with webpte.load(tmp_path / "p.pte") as program:
            assert np.array_equal(program.method()(x), x + W)

    once()
    start = live_objects()
    assert start.get("Device", 0) >= 1, start
    for _ in range(20):
        once()
    assert live_objects() == start


def test_close_is_final_and_can_be_repeated(tmp_path, x):
    add_program(tmp_path / "p.pte")
    program = webpte.load(tmp_path / "p.pte")
    forward = program.method()
    program.close()
    program.close()
    with pytest.raises(webpte.ClosedError):
        forward(x)
    with pytest.raises(webpte.ClosedError):
        program.method()


def test_value_list_returns_two_outputs(tmp_path):
    """Anything else in the place of a tuple of outputs is refused with its kind."""
    shape = VkTensor(F32, (1, 2, 1, 4))
    table = VkTensor(F32, (2, 2))
    values = [shape, shape, table, table, shape, shape, VkValueList((4, 5))]
    for out in (6, 4):
        calls = [("et_vk.apply_rotary_emb.default", (0, 1, 2, 3, out))]
        simple_pte(tmp_path / "p.pte", values, calls, inputs=[0, 1, 2, 3], outputs=[4, 5])
        with webpte.load(tmp_path / "p.pte") as program:
            if out == 4:
                with raises(webpte.GraphError, "et_vk.apply_rotary_emb.default", "got 1", "ValueList"):
                    program.method()
            else:
                ones = np.ones((1, 2, 1, 4), np.float32)
                q, _ = program.method()(ones, ones, np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32))
                assert np.array_equal(q, ones)


def test_keys_are_content_hashes(tmp_path):
    (key,) = add_program(tmp_path / "p.pte")
    assert key == hashlib.sha256(W.tobytes()).hexdigest()
