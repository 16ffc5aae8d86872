"""Memory is given back when nothing is asked any more, not while something is."""

from __future__ import annotations

import asyncio
import ctypes
import sys

import pytest

from webpte.serve import processes


@pytest.fixture
def trimmed(monkeypatch):
    results: list[None] = []
    monkeypatch.setattr(processes, "trim", lambda: results.append(None))
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.05)
    return results


async def once(trimmed):
    async with asyncio.timeout(60):
        while not trimmed:
            await asyncio.sleep(0.01)
    await asyncio.sleep(2 * processes.IDLE_SECONDS)
    assert len(trimmed) == 1


def test_idle_trim_after_last_request(trimmed):
    async def test() -> None:
        rest = processes.IdleTrim()
        with rest:
            with rest:
                pass
            await asyncio.sleep(0.2)
            assert not trimmed  # one is still under way
        assert not trimmed
        await once(trimmed)

    asyncio.run(test())


def test_idle_trim_postponed_by_next_request(trimmed, monkeypatch):
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.5)

    async def test() -> None:
        rest = processes.IdleTrim()
        for _ in range(20):
            with rest:
                await asyncio.sleep(0.05)
        assert not trimmed
        await once(trimmed)

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_memory_functions_exist_in_c_library():
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        pytest.skip("another C library")
    assert library.mallopt and library.malloc_trim


def test_memory_functions_missing_are_ignored(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    processes.trim()
    processes.use_one_arena()
