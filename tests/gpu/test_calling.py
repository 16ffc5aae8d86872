"""Arguments of a call, its results, and the errors of wrong calls."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import Method, pte_file, simple_pte
from webpte import container as c
from webpte.container import DType, VkInt, VkTensor
from webpte.device import recording

F32, I32, BOOL = DType.FLOAT32, DType.INT32, DType.BOOL


@pytest.fixture
def double(tmp_path):
    """forward(x) = x + x, x f32[11, 7] at most."""
    values = [VkTensor(F32, (11, 7)), VkInt(1), VkTensor(F32, (11, 7))]
    calls = [("aten.add.Tensor", (0, 0, 1, 2))]
    simple_pte(tmp_path / "p.pte", values, calls, [0], [2], dynamic=True)
    with webpte.load(tmp_path / "p.pte") as program:
        yield program.method()


@pytest.mark.parametrize("rows", [11, 5, 1])
def test_outputs_have_the_live_shape_and_own_their_memory(double, rows):
    x = np.random.default_rng(rows).random((rows, 7), np.float32)
    y = double(x)
    assert y.shape == (rows, 7) and y.dtype == np.float32 and y.flags.owndata and y.flags.writeable
    assert np.array_equal(y, x + x)
    double(np.zeros((11, 7), np.float32))
    assert np.array_equal(y, x + x)


def test_lossless_conversions_are_accepted_and_others_refused(double):
    assert np.array_equal(double(np.full((2, 7), 3, np.int16)), np.full((2, 7), 6, np.float32))
    assert np.array_equal(double(np.ones((2, 7), np.float16)), np.full((2, 7), 2.0))
    with raises(webpte.InputError, "float64", ".astype(np.float32)", code="dtype"):
        double(np.ones((2, 7)))


@pytest.mark.parametrize(
    ("shape", "expected", "code"),
    [((12, 7), "[<=11, <=7]", "bound"), ((0, 7), "[<=11, <=7]", "bound"), ((7,), "[<=11, <=7]", "rank")],
)
def test_call_shape_above_bound_refused_method_stays_usable(double, shape, expected, code):
    good = np.ones((3, 7), np.float32)
    double(good)
    before = double.lowerings
    with raises(webpte.InputError, list(shape), expected, code=code):
        double(np.ones(shape, np.float32))
    assert np.array_equal(double(good), good * 2)
    assert double.lowerings == before


DEMO = Path(__file__).parents[2] / "docs" / "demo" / "model.pte"


def test_call_wrong_fixed_dim_reports_signature_without_larger_bound():
    with webpte.load(DEMO) as program:
        method = program.method()
        bound = method.inputs[0].bound
        assert bound is not None and method.inputs[0].dynamic == (False, True)
        for shape, code in (((2, 3), "shape"), ((1, 0), "bound")):
            with raises(webpte.InputError, f"[1, <={bound[1]}]", list(shape), code=code) as caught:
                method(np.zeros(shape, np.int64), np.zeros(1, np.int64))
            assert "larger" not in str(caught.value)


def test_call_fixed_dim_of_weight_is_checked_before_any_op(tmp_path):
    """The op would report the shapes of its operands; the caller knows the inputs. The method is usable afterwards."""
    values = [VkTensor(F32, (5, 3)), VkTensor(F32, (3, 2), constant_id=0), VkTensor(F32, (5, 2))]
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    simple_pte(tmp_path / "m.pte", values, [("aten.mm.default", (0, 1, 2))], [0], [2], [weight], dynamic=True)
    good = np.ones((4, 3), np.float32)
    with webpte.load(tmp_path / "m.pte") as program:
        forward = program.method()
        with raises(webpte.InputError, "input 0 of forward", "f32[<=5, 3]", "[4, 2]", code="shape"):
            forward(np.ones((4, 2), np.float32))
        np.testing.assert_array_equal(forward(good), good @ weight)


def test_repr_of_program_and_method_agree():
    with webpte.load(DEMO) as program:
        method = program.method()
        for info in (*method.inputs, *method.outputs):
            assert f"{info.name}: {info}" in repr(program) and f"{info.name}: {info}" in repr(method)


def test_python_numbers_take_any_dtype_of_their_kind(double, tmp_path):
    assert np.array_equal(double([[0.1] * 7, [1] * 7]), np.array([[0.1] * 7, [1.0] * 7], np.float32) * 2)
    with raises(webpte.InputError, "complex128", "float32", code="dtype"):
        double([[1j] * 7])
    values = [VkTensor(I32, (3,)), VkInt(1), VkTensor(I32, (3,))]
    simple_pte(tmp_path / "i.pte", values, [("aten.add.Tensor", (0, 0, 1, 2))], [0], [2])
    with webpte.load(tmp_path / "i.pte") as program:
        assert program.method()([1, 2, -3]).tolist() == [2, 4, -6]
        with raises(webpte.InputError, "float64", "int32", code="dtype"):
            program.method()([1.5, 2.0, 3.0])
        with raises(webpte.InputError, "int32", code="overflow"):
            program.method()([1, 2, 2**40])


def test_call_wrong_number_of_inputs_raises(double):
    with raises(webpte.InputError, "1 inputs (in0: f32[<=11, <=7]), got 2", code="input_count"):
        double(1, 2)


def test_call_non_numeric_input_raises(double):
    with raises(webpte.InputError, "input 0", "object", "float32", code="not_numeric"):
        double(object())


def test_call_static_program_wrong_shape_raises(tmp_path):
    values = [VkTensor(F32, (5, 7)), VkInt(1), VkTensor(F32, (5, 7))]
    simple_pte(tmp_path / "p.pte", values, [("aten.add.Tensor", (0, 0, 1, 2))], [0], [2])
    with webpte.load(tmp_path / "p.pte") as program, raises(webpte.InputError, "[4, 7]", "[5, 7]", code="shape"):
        program.method()(np.ones((4, 7), np.float32))


def test_64_bit_integers_are_narrowed_and_widened(tmp_path):
    values = [VkTensor(I32, (7,)), VkInt(1), VkTensor(I32, (7,))]
    simple_pte(tmp_path / "p.pte", values, [("aten.add.Tensor", (0, 0, 1, 2))], [0], [2], long_ints=True)
    with webpte.load(tmp_path / "p.pte") as program:
        forward = program.method()
        y = forward(np.arange(7))
        assert y.dtype == np.int64 and np.array_equal(y, 2 * np.arange(7))
        with raises(webpte.InputError, 2**40, code="int32_range"):
            forward(np.arange(7) + 2**40 - 6)
        assert np.array_equal(forward(np.arange(7)), 2 * np.arange(7))


def test_bools_go_in_and_out(tmp_path):
    values = [VkTensor(BOOL, (3, 5)), VkTensor(BOOL, (3, 5))]
    simple_pte(tmp_path / "p.pte", values, [("aten.logical_not.default", (0, 1))], [0], [1])
    x = np.random.default_rng(0).random((3, 5)) < 0.5
    with webpte.load(tmp_path / "p.pte") as program:
        y = program.method()(x)
        assert y.dtype == bool and np.array_equal(y, ~x)


def test_constant_methods_return_python_values(tmp_path):
    methods = [
        Method("get_vocab_size", [c.IntValue(49152)], outputs=[0]),
        Method("get_eos_ids", [c.IntValue(2), c.IntValue(7)], outputs=[0, 1]),
        Method("rope_scale", [c.DoubleValue(0.5)], outputs=[0]),
        Method("use_kv_cache", [c.BoolValue(True)], outputs=[0]),
        Method("nothing", [c.NullValue()], outputs=[0]),
    ]
    pte_file(tmp_path / "p.pte", methods)
    with webpte.load(tmp_path / "p.pte") as program:
        assert program.method("get_vocab_size")() == 49152
        assert program.method("get_eos_ids")() == (2, 7)
        assert program.method("rope_scale")() == 0.5
        assert program.method("use_kv_cache")() is True
        assert program.method("nothing")() is None
        with raises(webpte.InputError, "'forward'", "get_vocab_size", code="unknown_method"):
            program.method()


def test_call_input_passed_through_is_copied(tmp_path):
    values = [c.TensorValue(F32, (3,), (0,))]
    pte_file(tmp_path / "p.pte", [Method(values=values, inputs=[0], outputs=[0])])
    x = np.ones(3, np.float32)
    with webpte.load(tmp_path / "p.pte") as program:
        y = program.method()(x)
        y[:] = 7
        assert np.array_equal(x, np.ones(3))


def test_threads_may_call_one_method(double):
    wrong = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(10):
            x = random.random((int(random.integers(1, 12)), 7), np.float32)
            if not np.array_equal(double(x), x + x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_dispatch_folded_grid_covers_all_elements(tmp_path):
    """More workgroups than one dimension may have: 64 * 65535 threads and some."""
    n = 64 * 65535 + 97
    values = [VkTensor(F32, (n,)), VkInt(1), VkTensor(F32, (n,))]
    simple_pte(tmp_path / "p.pte", values, [("aten.add.Tensor", (0, 0, 1, 2))], [0], [2])
    x = np.arange(n, dtype=np.float32)
    with webpte.load(tmp_path / "p.pte") as program:
        assert np.array_equal(program.method()(x), x + x)


def test_load_unknown_delegate_names_partitioner(tmp_path):
    from tests.support.harness.writer import DelegateBlob

    values = [c.TensorValue(F32, (3,), (0,)), c.TensorValue(F32, (3,), (0,))]
    method = Method(
        values=values,
        inputs=[0],
        outputs=[1],
        instructions=[c.DelegateCall(0, (0, 1))],
        delegates=[DelegateBlob(b"????", backend="CoreMLBackend")],
    )
    pte_file(tmp_path / "p.pte", [method])
    with raises(webpte.UnsupportedError, "CoreMLBackend", "VulkanPartitioner"):
        webpte.load(tmp_path / "p.pte")


@pytest.mark.parametrize("mapped", [False, True])
def test_call_interrupted_readback_stays_usable(double, monkeypatch, mapped):
    """A buffer that stayed mapped would abort the process at the next submit."""
    x = np.ones((3, 7), np.float32)
    double(x)
    original = recording.wait_until

    def interrupted(done):
        if mapped:
            original(done)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recording, "wait_until", interrupted)
        with pytest.raises(KeyboardInterrupt):
            double(x)
    assert np.array_equal(double(x), x + x)
