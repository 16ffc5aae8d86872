"""A server that loses its device, its adapter, its memory or its disk while it answers: clients get the same text."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serving.asking import HELLO
from tests.support.harness.serving import Running, children_of, event_in, until
from tests.support.models.caller_files import write_caller

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are changed"),
]
CLIENTS = 3
SLOTS = 4
TOKENS = 60
PATIENCE: tuple[Any, ...] = ("--queue-timeout", 240, "--ttft-timeout", 240)  # a new worker may compile its kernels


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return write_caller(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def running(program) -> Iterator[Running]:
    with Running(program, "--slots", SLOTS, *PATIENCE, module="tests.serving.hurt_server") as result:
        yield result


@pytest.fixture(scope="module")
def texts(running) -> list[str]:
    """Return the answers of an undisturbed server."""
    return [answer(running, number) for number in range(CLIENTS)]


def answer(running: Running, number: int, after_first: Callable[[], object] = lambda: None) -> str:
    """The text of a stream. `after_first` is called after its first text."""
    body = {"model": "caller", "messages": HELLO, "max_tokens": TOKENS, "temperature": 1, "seed": number}
    text = ""
    with httpx.stream("POST", f"{running.api}/chat/completions", json=body | {"stream": True}, timeout=240) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            event = event_in(line)
            if event is not None:
                assert "error" not in event, event
                part = event["choices"][0]["delta"].get("content") or ""
                if part and not text:
                    after_first()
                text += part
    return text


def counted(running: Running, name: str) -> float:
    lines = httpx.get(f"{running.url}/metrics", timeout=60).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"webpte_{name} "))


@pytest.mark.parametrize(
    ("how", "counter"), [(signal.SIGUSR1, "device_losses_total"), (signal.SIGUSR2, "restarts_total")]
)
def test_answers_after_a_device_loss_are_the_same(running, texts, how, counter):
    """The worker opens another device or, if there is none, is replaced."""
    (worker,) = children_of(running.pid)
    before = counted(running, counter)
    assert answer(running, 0, lambda: os.kill(worker, how)) == texts[0]
    until(lambda: counted(running, counter) == before + 1, counter)
    assert (children_of(running.pid) == [worker]) == (how == signal.SIGUSR1)
    assert answer(running, 1) == texts[1]


def test_answers_while_memory_runs_out_are_the_same(running, texts):
    """The worker needs more slots than fit: they are fewer, or the driver crashes and the worker is replaced."""
    import resource

    (worker,) = children_of(running.pid)
    steps, restarts = counted(running, "steps_total"), counted(running, "restarts_total")
    with open(f"/proc/{worker}/statm", encoding="ascii") as sizes:
        limit = int(sizes.read().split()[0]) * resource.getpagesize() + (8 << 20)
    resource.prlimit(worker, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with ThreadPoolExecutor(CLIENTS) as pool:
        assert list(pool.map(lambda number: answer(running, number), range(CLIENTS))) == texts
    until(lambda: counted(running, "steps_total") >= steps + TOKENS, "counters of the worker")
    assert counted(running, "slots") < SLOTS or counted(running, "restarts_total") > restarts
    if children_of(running.pid) == [worker]:
        resource.prlimit(worker, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_answers_while_no_file_can_be_written_are_the_same(running, texts):
    """Writing any byte to a file fails, in the server and its worker; caches are read.

    A software driver takes memory from a file, so the worker has its slots before, also if it has just been replaced.
    """
    import resource

    assert [answer(running, number) for number in range(CLIENTS)] == texts
    pids = (running.pid, *children_of(running.pid))
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        assert [answer(running, number) for number in range(CLIENTS)] == texts
        assert httpx.get(f"{running.url}/health", timeout=60).status_code == 200
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.slow  # kernels are compiled again, because their caches are on the full disk
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can mount a file system")
def test_server_with_a_full_disk_answers_and_replaces_its_worker(program, tmp_path, texts):
    """Caches, temporary files, home and runtime folder are on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk]).returncode:
        pytest.skip("the system does not allow to mount a file system")
    try:
        with open(disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(bytes(4096))
        names = ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "HOME", "MESA_SHADER_CACHE_DIR")
        with Running(program, *PATIENCE, environment=dict.fromkeys(names, str(disk))) as running:
            assert answer(running, 0) == texts[0]
            (worker,) = children_of(running.pid)
            os.kill(worker, signal.SIGKILL)
            assert answer(running, 1) == texts[1]
            assert counted(running, "restarts_total") == 1
    finally:
        subprocess.run(["umount", disk], check=True)
