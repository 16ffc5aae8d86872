"""Refuse processes and sockets in ``tests/unit``: a test that needs them belongs in another tier."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

FORBIDDEN = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
}
_running: list[str] = []  # the unit test that runs now; an audit hook cannot be removed


def _refuse(event: str, _: object) -> None:
    if _running and event in FORBIDDEN:
        raise RuntimeError(f"{_running[-1]}: {event} is not allowed in tests/unit. Move the test to tests/process.")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True, scope="module")
def _no_processes_or_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    _running.append(request.node.nodeid)
    yield
    _running.pop()
