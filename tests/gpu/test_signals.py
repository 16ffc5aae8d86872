"""SIGINT, sent to real processes at several moments, ends them as it should. tests.studies.soak.signals measures how
soon."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest

import webpte
from tests.studies.soak.signals import processes_of, remaining_processes
from tests.support.harness.gate import slow_but
from tests.support.harness.terminal import SRC
from tests.support.harness.writer import simple_pte
from webpte import cli
from webpte.cli import interrupts
from webpte.cli.parsing import Parser
from webpte.container import DType, VkInt, VkTensor
from webpte.device import adapter as adapter_module
from webpte.device import gpu

F32 = DType.FLOAT32
PATIENCE = 120  # seconds, only to end what hangs
LOOP = """
import sys, numpy as np, webpte
x = np.ones((64, 64), np.float32)
try:
    with webpte.load(sys.argv[1]) as program:
        method = program.method()
        print("ready", flush=True)
        while True:
            method(x)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
# A command that does not come back to Python, as a driver may that compiles; then one that loses the interrupt.
STUCK = """
import ctypes, os, sys
from webpte import cli
from webpte.partial_files import partial_path
def stuck():
    context = partial_path(sys.argv[2])
    context.__enter__()
    os.mkdir(sys.argv[2])
    open(sys.argv[2] + "/file", "w").close()
    print("ready", flush=True)
    if sys.argv[1] == "native":
        ctypes.CDLL(None).sleep(600)
    while True:
        try:
            for _ in range(10**9): pass
        except (KeyboardInterrupt, SystemExit):
            pass
cli.main = stuck
cli.entry()
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("signals") / "p.pte"
    values = [VkTensor(F32, (64, 64)), VkInt(1), VkTensor(F32, (64, 64))]
    simple_pte(path, values, [("aten.add.Tensor", (0, 0, 1, 2))], [0], [2])
    return path


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SRC)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupted(child, number=signal.SIGINT):
    """Send a signal; the exit code, and what was printed."""
    try:
        child.send_signal(number)
        out, err = child.communicate(timeout=PATIENCE)
        return child.returncode, out, err
    finally:
        child.kill()


@pytest.mark.parametrize("moment", slow_but([0.0, 0.01, 0.1], [0.0, 0.003, 0.01, 0.04, 0.1, 0.2]))
def test_sigint_during_calls_raises_keyboard_interrupt(path, moment):
    child = start("-c", LOOP, path)
    assert child.stdout.readline() == "ready\n"
    time.sleep(moment)
    assert interrupted(child) == (0, "interrupted\n", "")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("how", ["native", "swallowed"])
def test_signal_second_ends_unresponsive_command(how, number, exit_code, tmp_path):
    part = tmp_path / "part"
    child = start("-c", STUCK, how, part)
    assert child.stdout.readline() == "ready\n"
    assert (part / "file").exists()
    code, _, err = interrupted(child, number)
    assert (code, err) == (exit_code, "") and not part.exists()


@pytest.mark.parametrize(
    ("command", "imported"), [("inspect", "argparse"), ("bench", "argparse"), ("bench", "wgpu.backends.auto")]
)
def test_sigint_during_start_exits_130(path, command, imported):
    """It shows on stderr what it has imported, and so how far it is; unread, it waits."""
    child = start("-X", "importtime", "-m", "webpte", command, path)
    fcntl.fcntl(child.stderr, fcntl.F_SETPIPE_SZ, 4096)
    seen = b""
    while f" {imported}\n".encode() not in seen:
        assert select.select([child.stderr], [], [], 60)[0]
        seen += (piece := os.read(child.stderr.fileno(), 4096))
        assert piece, seen.decode()
    code, _, err = interrupted(child)
    assert code == interrupts.EXIT_CODE and "Traceback" not in err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_sigint_each_command_exits_130(monkeypatch, command):
    def run(arguments):
        raise KeyboardInterrupt

    def load_command(name):
        assert name == command
        return types.SimpleNamespace(run=run), Parser()

    monkeypatch.setattr(cli, "load_command", load_command)
    assert cli.main([command]) == interrupts.EXIT_CODE


def test_sigint_during_device_request_raises_keyboard_interrupt(path, monkeypatch):
    """In its callbacks it would be taken for an error of the device."""
    adapter = adapter_module.chosen_adapter()
    real = type(adapter).request_device_sync

    def pressed(self, **options):
        signal.raise_signal(signal.SIGINT)
        return real(self, **options)

    monkeypatch.setattr(gpu, "_OPEN", [])
    monkeypatch.setattr(type(adapter), "request_device_sync", pressed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with webpte.load(path) as program:
            with pytest.raises(KeyboardInterrupt):
                program.method()
            monkeypatch.setattr(type(adapter), "request_device_sync", real)
            x = np.ones((64, 64), np.float32)
            assert np.array_equal(program.method()(x), x + x)
    finally:
        signal.signal(signal.SIGINT, before)


def test_self_test_of_killed_command_ends(tmp_path):
    """A command that is interrupted may end before it could end its child."""
    (tmp_path / "sitecustomize.py").write_text("import json, time\njson.dumps = lambda value: time.sleep(600)\n")
    command = [sys.executable, "-c", "from webpte.debug.doctor import self_test_child\nself_test_child()"]
    environment = os.environ | {"PYTHONPATH": f"{SRC}{os.pathsep}{tmp_path}"}
    with subprocess.Popen(command, env=environment, start_new_session=True) as parent:
        deadline = time.monotonic() + PATIENCE
        while len(processes_of(parent.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(processes_of(parent.pid)) == 2
        parent.kill()
    assert remaining_processes(parent.pid) == []
