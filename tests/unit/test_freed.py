"""Memory is given back when nothing is asked any more, not while something is."""

from __future__ import annotations

import asyncio
import ctypes
import sys

import pytest

from webpte.serve import freed


@pytest.fixture
def given_back(monkeypatch):
    found: list[None] = []
    monkeypatch.setattr(freed, "give_back", lambda: found.append(None))
    monkeypatch.setattr(freed, "REST", 0.05)
    return found


async def once(given_back):
    async with asyncio.timeout(60):
        while not given_back:
            await asyncio.sleep(0.01)
    await asyncio.sleep(2 * freed.REST)
    assert len(given_back) == 1


def test_the_last_request_gives_memory_back_after_a_while(given_back):
    async def test() -> None:
        rest = freed.AtRest()
        with rest:
            with rest:
                pass
            await asyncio.sleep(0.2)
            assert not given_back  # one is still under way
        assert not given_back
        await once(given_back)

    asyncio.run(test())


def test_a_request_that_follows_puts_it_off(given_back, monkeypatch):
    monkeypatch.setattr(freed, "REST", 0.5)

    async def test() -> None:
        rest = freed.AtRest()
        for _ in range(20):
            with rest:
                await asyncio.sleep(0.05)
        assert not given_back
        await once(given_back)

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_the_c_library_knows_what_it_is_asked_for():
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        pytest.skip("another C library")
    assert library.mallopt and library.malloc_trim


def test_a_library_without_such_functions_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    freed.give_back()
    freed.one_heap()
