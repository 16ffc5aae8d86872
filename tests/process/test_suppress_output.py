"""Output of ExecuTorch's kernels to stderr is suppressed, and no other output, in real processes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.support.harness.children import SRC

MODULE = SRC / "webpte" / "suppress_output.py"  # alone: all of the package takes longer to import than these tests
BEGIN = f"""
import importlib.util, logging, os, sys, threading
spec = importlib.util.spec_from_file_location("suppress_output", {str(MODULE)!r})
module = importlib.util.module_from_spec(spec)
sys.modules["suppress_output"] = module
spec.loader.exec_module(module)
suppress_kernel_messages = module.suppress_kernel_messages

def kernel(text="[kernel_runtime_context.h:91] No temp allocator provided"):
    os.write(2, text.encode() + b"\\n")
"""
NOISE = """
kernel()
kernel("[cpuinfo_utils.cpp:125] CPU info and manual query on # of cpus dont match.")
"""


def stderr_of(code: str, status: int = 0) -> list[str]:
    child = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, timeout=60)
    assert child.returncode == status, child.stderr
    return child.stderr.decode().splitlines()


def inside(code: str) -> str:
    return "with suppress_kernel_messages():\n" + "".join(f"    {line}\n" for line in (NOISE + code).splitlines())


def test_suppress_output_removes_only_kernel_noise():
    """Python's own lines come at once, those of others when the run has ended."""
    code = inside('kernel("real trouble"); kernel("[cpuinfo]: unusual"); print("progress", file=sys.stderr)')
    lines = stderr_of(code + NOISE)
    assert lines[:3] == ["progress", "real trouble", "[cpuinfo]: unusual"]
    assert len(lines) == 5 and "temp allocator" in lines[3] and "cpuinfo_utils" in lines[4]  # outside it is reported


def test_suppress_output_keeps_lines_before_failure():
    lines = stderr_of(inside('kernel("out of scratch"); raise SystemExit("it failed")'), status=1)
    assert lines == ["out of scratch", "it failed"]
    assert stderr_of(inside("kernel('a line'); os.write(2, b'cut'); raise SystemExit(3)"), status=3) == [
        "a line",
        "cut",
    ]


def test_runs_may_follow_each_other_and_be_nested():
    twice = inside('kernel("first")') + inside(
        'kernel("second")\nwith suppress_kernel_messages(): kernel("third")\nkernel()'
    )
    assert stderr_of(twice + 'kernel("after")') == ["first", "second", "third", "after"]


def test_suppress_output_threads_last_one_restores_stderr():
    code = """
entered, leave = threading.Event(), threading.Event()
def other():
    with suppress_kernel_messages():
        entered.set()
        leave.wait(60)
        kernel("of the other thread")
        kernel()
thread = threading.Thread(target=other)
with suppress_kernel_messages():
    thread.start()
    assert entered.wait(60)
kernel()  # still inside, by the other thread
leave.set()
thread.join()
print("python", file=sys.stderr)
assert sys.stderr is sys.__stderr__
"""
    assert stderr_of(code) == ["of the other thread", "python"]


def test_log_handlers_outlive_the_run_that_created_them():
    code = "logging.basicConfig(format='%(message)s')\nlogging.warning('inside')"
    again = "logging.warning('between')\n" + inside("logging.warning('in the second')") + "logging.warning('after')"
    assert stderr_of(inside(code) + again) == ["inside", "between", "in the second", "after"]


@pytest.mark.parametrize("closed", ["os.close(2)", "os.close(2); sys.stderr = None"])
def test_suppress_output_closed_stderr_is_allowed(closed):
    assert stderr_of(f"{closed}\nwith suppress_kernel_messages(): pass") == []


def test_suppress_output_leaves_no_open_files():
    code = """
def count(): return len(os.listdir("/dev/fd"))
with suppress_kernel_messages(): pass
before = count()
for _ in range(5):
    with suppress_kernel_messages(): kernel()
assert count() == before, (count(), before)
"""
    assert stderr_of(code) == []


def test_bars_are_drawn_all_the_same():
    """On a terminal, where rich puts a stand-in into the place of stderr."""
    code = """
from webpte.cli.terminal import bars
from webpte.progress import Progress
with bars() as progress, suppress_kernel_messages():
    for done in range(5):
        kernel()
        progress(Progress("quantize", done, 4, "layers"))
print("done", file=sys.stderr)
"""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(SRC), "TERM": "xterm-256color"}
    child = subprocess.Popen([sys.executable, "-c", BEGIN + code], stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # how Linux shows that the other side is closed
        pass
    finally:
        os.close(ours)
    assert child.wait(60) == 0
    assert b"quantize" in shown and b"4 of 4 layers" in shown and shown.endswith(b"done\r\n"), shown
    assert b"temp allocator" not in shown
