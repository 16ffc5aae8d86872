"""What the logger `webpte` is reported, by levels."""

from __future__ import annotations

import logging

import webpte
from tests.support.harness.children import run_python
from tests.support.harness.counting import X, answer, counting_pte


def test_logging_load_and_plan_are_info_calls_are_silent(tmp_path, caplog):
    path = counting_pte(tmp_path / "p.pte")
    with caplog.at_level(logging.INFO, "webpte"), webpte.load(path) as program:
        assert f"loaded {str(path)!r} ({path.stat().st_size} bytes): 1 methods, 'forward'" in caplog.messages[0]
        method = program.method()
        ready = caplog.messages[-1]
        assert "'forward' is ready on " in ready and " calls in 1 submits, 0 of them on the CPU, " in ready
        assert f" {program.memory('forward').total} bytes (constant 144, state 144, " in ready
        caplog.clear()
        assert (method(X) == answer(1, 1)).all()
        method.fork()(X)
    assert not caplog.records


def test_logging_debug_lists_each_kernel(tmp_path):
    """In a process of its own: a device that others use has compiled them already."""
    text = run_python(
        "import logging, sys, webpte\n"
        "logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format='%(levelname)s %(message)s')\n"
        "logging.getLogger('webpte').setLevel(logging.DEBUG)\n"
        "with webpte.load(sys.argv[1]) as program:\n"
        "    print(*(f'kernel {k.label}' for k in program.method().plan.kernels), sep='\\n')",
        counting_pte(tmp_path / "p.pte"),
    ).splitlines()
    kernels = [line.removeprefix("kernel ") for line in text if line.startswith("kernel ")]
    compiled = [line for line in text if line.startswith("DEBUG compiled ")]
    assert len(compiled) == len(kernels) > 0
    assert all(any(line.startswith(f"DEBUG compiled {kernel} in ") for line in compiled) for kernel in kernels)


def test_logging_default_prints_nothing(tmp_path, capfd):
    with webpte.load(counting_pte(tmp_path / "p.pte")) as program:
        program.method()(X)
    assert capfd.readouterr() == ("", "")
