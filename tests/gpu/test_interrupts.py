"""Whatever a call was doing when it was interrupted, the next one gives exact results."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.devices import gpu_of
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_but
from tests.support.harness.interruption import (
    COLUMNS,
    ROWS,
    WEIGHT,
    Interrupter,
    arguments,
    bounded,
    expected,
    first_moments,
    write_subject,
)
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkSymInt, VkTensor
from webpte.device import recording

F32 = DType.FLOAT32
STRIDES = slow_but([5], [5, 1])  # every fifth line in the gate, and every line in the nightly run


@pytest.fixture(autouse=True)
def in_time():
    with bounded():
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("interrupts") / "p.pte"
    write_subject(path)
    return path


@pytest.fixture
def method(path, device):
    with webpte.load(path, passes=()) as program:
        yield program.method()


def check(method, *shape_and_number):
    np.testing.assert_array_equal(method(*arguments(*shape_and_number)), expected(*shape_and_number))


@pytest.mark.parametrize("stride", STRIDES)
def test_interrupt_each_line_of_call_known_shape(method, stride):
    check(method, 3, 5, 0)
    check(method, 2, 3, 0)
    at = 0
    while Interrupter(at).run(method, *arguments(3, 5, at)):
        # At the same shape with the same number, at the same with another, and at another.
        check(method, 3, 5, at) if at % 2 else check(method, 3, 5, -1)
        check(method, 2, 3, at)
        at += stride
    assert at > 150


@pytest.mark.parametrize("stride", STRIDES)
def test_interrupt_each_line_of_call_new_shape(method, stride):
    shapes = iter([(rows, columns) for rows in range(4, ROWS) for columns in range(4, COLUMNS)])
    check(method, 2, 3, 0)
    at, shape = 0, next(shapes)
    while Interrupter(at).run(method, *arguments(*shape, 11)):
        check(method, *shape, 11 if at % 2 else 12)
        check(method, 2, 3, at)
        at, shape = at + stride, next(shapes)
    assert at > 400


@pytest.mark.parametrize("stride", STRIDES)
def test_interrupt_each_line_of_batched_steps(method, stride):
    def steps(first):
        return [arguments(2, 3, first + step) for step in range(3)]

    def checked(first):
        # Fed, so that only the shape of what the later steps hold counts.
        x = steps(first)[0][0]
        for step, (result,) in enumerate(method.run_steps(steps(first), {0: 0}, [0])):
            x = (x + first + step) * WEIGHT + x
            np.testing.assert_array_equal(result, x)

    checked(0)
    at = 0
    while Interrupter(at).run(method.run_steps, steps(at), {0: 0}, [0]):
        checked(at) if at % 2 else checked(-1)
        check(method, 2, 3, at + 1)
        at += stride
    assert at > 150


@pytest.mark.parametrize("stride", STRIDES)
def test_interrupt_each_line_of_loading(path, device, stride):
    """The weights of a load that was interrupted are not taken for uploaded."""
    with webpte.load(path, passes=()) as program:
        program.method()  # the kernels are compiled now

    for room in ("device/", "runtime/"):
        with webpte.load(path, passes=()) as program:
            moments = first_moments(program.method, room)
        for at in moments[::stride]:
            with webpte.load(path, passes=()) as program:
                assert Interrupter(at, within=room).run(program.method)
                check(program.method(), 3, 5, 7)


def test_integer_too_large_refused_before_upload(tmp_path, device):
    values = [VkTensor(F32, (3,)), VkSymInt(0), VkInt(1), VkTensor(F32, (3,))]
    simple_pte(tmp_path / "p.pte", values, [("aten.add.Scalar", [0, 1, 2, 3])], [0, 1], [3])
    x = np.ones(3, np.float32)
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        for number in (5, 2**31 - 1 - 2**7, -(2**31)):
            for wrong in (2**31, -(2**31) - 1, 10**30):
                with raises(webpte.InputError, "input 1 of forward", wrong, code="int32_range"):
                    method(x, wrong)
            np.testing.assert_array_equal(method(x, number), x + np.float32(number))


def test_input_write_failing_is_repeated_next_call(method, monkeypatch):
    check(method, 2, 3, 1)
    with monkeypatch.context() as patch:

        def refuse(*_):
            raise webpte.DeviceError("no")

        patch.setattr(gpu_of(method), "write", refuse)
        with pytest.raises(webpte.DeviceError):
            method(*arguments(2, 3, 2))
    check(method, 2, 3, 2)


def test_native_callback_exception_reaches_waiting_thread(method, monkeypatch):
    """cffi drops it; the waiter would wait for ever for a status that never comes."""
    check(method, 2, 3, 1)
    real, calls = recording._pending, list[int]()

    class Pending(dict):
        def __contains__(self, number):
            if not calls:
                calls.append(number)
                raise KeyboardInterrupt
            return super().__contains__(number)

    monkeypatch.setattr(recording, "_pending", Pending(real))
    with pytest.raises(KeyboardInterrupt):
        method(*arguments(2, 3, 2))
    assert calls
    check(method, 2, 3, 3)
