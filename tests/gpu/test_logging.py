"""What the logger `webpte` is told, by levels."""

from __future__ import annotations

import logging

import webpte
from tests.support.harness.counting import X, answer, counting_pte


def test_loading_and_planning_are_told_with_numbers_and_calls_are_not(tmp_path, caplog):
    path = counting_pte(tmp_path / "p.pte")
    with caplog.at_level(logging.INFO, "webpte"), webpte.load(path) as program:
        assert f"loaded {str(path)!r} ({path.stat().st_size} bytes): 1 methods, 'forward'" in caplog.messages[0]
        method = program.method()
        ready = caplog.messages[-1]
        assert "'forward' is ready on " in ready and " calls in 1 submits, 0 of them on the CPU, " in ready
        assert f" {program.memory().total} bytes (constant 144, state 144, " in ready
        caplog.clear()
        assert (method(X) == answer(1, 1)).all()
        method.fork()(X)
    assert not caplog.records


def test_kernels_are_told_one_by_one(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, "webpte"), webpte.load(counting_pte(tmp_path / "p.pte")) as program:
        kernels = program.method().plan.kernels
    told = [r for r in caplog.records if r.levelno == logging.DEBUG and r.getMessage().startswith("compiled ")]
    assert len(told) == len(kernels) > 0
    assert all(f"compiled {k.label} in " in caplog.text for k in kernels)


def test_nothing_is_told_to_who_did_not_ask(tmp_path, capfd):
    with webpte.load(counting_pte(tmp_path / "p.pte")) as program:
        program.method()(X)
    assert capfd.readouterr() == ("", "")
