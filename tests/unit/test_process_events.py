"""Ctrl-C waits for the end of a function that native code calls back into, and is never lost."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.support.harness.interruption import Interrupter
from webpte.device.process_events import defer_interrupts


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_defer_interrupts_raises_after_function():
    done = []

    @defer_interrupts
    def inner():
        press_ctrl_c()
        done.append("inner")

    @defer_interrupts
    def outer():
        inner()
        done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        outer()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    outer_without = defer_interrupts(lambda: 3)
    assert outer_without() == 3


def test_defer_interrupts_interrupt_replaces_error():
    @defer_interrupts
    def fails():
        press_ctrl_c()
        raise ValueError

    with pytest.raises(KeyboardInterrupt) as caught:
        fails()
    assert isinstance(caught.value.__context__, ValueError)


def test_defer_interrupts_calls_user_handler():
    came = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))

    @defer_interrupts
    def function():
        press_ctrl_c()
        assert not came
        return 5

    assert function() == 5 and came == [signal.SIGINT]


@pytest.mark.parametrize("chosen", [signal.SIG_IGN, signal.SIG_DFL])
def test_defer_interrupts_other_handlers_are_kept(chosen):
    signal.signal(signal.SIGINT, chosen)
    assert defer_interrupts(lambda: signal.getsignal(signal.SIGINT))() == chosen


def test_defer_interrupts_other_thread_unchanged():
    results = []

    @defer_interrupts
    def look():
        results.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert results == [signal.default_int_handler]


def test_ctrl_c_works_after_any_other_asynchronous_exception():
    """Raised between any two lines of it, `uninterrupted` may keep its handler: then that one gets through."""
    at = 0
    while Interrupter(at, within="device/process_events").run(defer_interrupts(int)):
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            defer_interrupts(press_ctrl_c)()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        at += 1
    assert at > 5
