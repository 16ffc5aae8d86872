"""Accounts of clients: what they hold and use, and the order in which they get slots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from webpte.serve import accounts as module
from webpte.serve.accounts import HALF_LIFE_SECONDS, LIGHT_SECONDS, Accounts, FairQueue, Pool, RequestClock
from webpte.serve.errors import ApiError


def test_slots_go_to_the_client_that_holds_the_fewest():
    queue: FairQueue[str] = FairQueue(slots=4, max_per_client=4)
    for item in ("a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1"):
        queue.push(item[0], item)
    assert [queue.pop() for _ in range(5)] == ["a1", "b1", "c1", "a2", None]
    for client in "bc":
        queue.release(client)
    assert [queue.pop(), queue.pop(), queue.pop()] == ["b2", "a3", None]
    assert len(queue) == 2 and queue.num_held == 4


def test_slots_of_one_client_are_bounded():
    queue: FairQueue[str] = FairQueue(slots=4, max_per_client=3)
    for item in ("a1", "a2", "a3", "a4"):
        queue.push("a", item)
    assert [queue.pop() for _ in range(4)] == ["a1", "a2", "a3", None]
    assert not queue.has_slot("a") and queue.has_slot("b")
    queue.release("a")
    assert queue.pop() == "a4"


def test_newest_item_of_the_client_with_most_makes_room():
    queue: FairQueue[str] = FairQueue(slots=0, max_per_client=0)
    assert queue.to_displace("a") is None
    for item in ("a1", "a2", "a3", "b1"):
        queue.push(item[0], item)
    assert queue.to_displace("a") is None
    assert [queue.to_displace(client) for client in "bc"] == ["a3", "a3"]
    queue.remove("a", "a3")
    assert queue.to_displace("b") is None and queue.to_displace("c") == "a2"


@pytest.fixture
def clock(monkeypatch):
    """The time of accounts, in seconds, which a test sets."""
    times = [100.0]
    monkeypatch.setattr("webpte.serve.accounts.time.monotonic", lambda: times[0])
    return times


def test_half_of_what_was_used_is_forgotten_after_the_half_life(clock):
    accounts = Accounts(100)
    accounts.charge("a", "decoding_seconds", 8.0)
    clock[0] += HALF_LIFE_SECONDS
    assert accounts.of("a").recent("decoding_seconds") == 4.0
    accounts.charge("a", "decoding_seconds", 2.0)
    clock[0] += 2 * HALF_LIFE_SECONDS
    assert accounts.of("a").recent("decoding_seconds") == 1.5 and accounts.totals["decoding_seconds"] == 10.0


def test_bytes_of_one_client_and_of_all_are_bounded():
    accounts = Accounts(100, 60)
    accounts.take_bytes("a", 60)
    with pytest.raises(ApiError, match="60 bytes") as caught:
        accounts.take_bytes("a", 1)
    assert caught.value.status == 429 and caught.value.headers["Retry-After"] == "1"
    accounts.take_bytes("b", 40)
    with pytest.raises(ApiError, match="100 bytes") as caught:
        accounts.take_bytes("c", 1)
    assert caught.value.status == 503 and accounts.refused["bytes"] == 2 and accounts.largest("bytes") == 60
    accounts.give_back("a", "bytes", 60)
    accounts.take_bytes("c", 60)
    assert accounts.totals["bytes"] == 100


def test_accounts_that_hold_nothing_are_forgotten_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(module, "MAX_ACCOUNTS", 3)
    accounts = Accounts(100)
    accounts.take("a", "connections")
    for client in "bcde":
        accounts.charge(client, "events", 1)
    assert len(accounts) <= 3 and accounts.of("a").held["connections"] == 1


def test_next_slot_goes_to_the_client_that_has_used_least_lately():
    used = {"a": 9.0, "b": 1.0, "c": 5.0}
    queue: FairQueue[str] = FairQueue(1, 1, used.__getitem__)
    for client in "abc":
        queue.push(client, client)
    order = []
    while (item := queue.pop()) is not None:
        order.append(item)
        queue.release(item)
    assert order == ["b", "c", "a"]


def test_clients_that_used_much_leave_the_reserved_slot_free():
    used = {"a": LIGHT_SECONDS, "b": LIGHT_SECONDS, "c": 0.0}
    queue: FairQueue[str] = FairQueue(2, 1, used.__getitem__, reserved=1)
    queue.push("a", "a")
    queue.push("b", "b")
    assert [queue.pop(), queue.pop()] == ["a", None]
    queue.push("c", "c")
    assert queue.pop() == "c"


def pooled(test: Callable[[Pool, Accounts], Awaitable[Any]], slots: int = 4) -> Any:
    async def whole() -> Any:
        accounts = Accounts(100)
        async with asyncio.timeout(60):
            return await test(Pool(accounts, "thread_seconds", slots), accounts)

    return asyncio.run(whole())


def test_turns_of_one_client_follow_each_other_and_those_of_others_do_not():
    async def test(pool: Pool, accounts: Accounts) -> None:
        events, go = [], asyncio.Event()

        async def one(client: str) -> None:
            async with pool.slot(client):
                events.append(client)
                await go.wait()

        tasks = [asyncio.ensure_future(one(client)) for client in "aab"]
        for _ in range(4):
            await asyncio.sleep(0)
        assert events == ["a", "b"]
        go.set()
        await asyncio.gather(*tasks)
        assert events == ["a", "b", "a"]

    pooled(test)


def test_wait_for_a_slot_ends_with_503_and_leaves_no_slot_taken():
    async def test(pool: Pool, accounts: Accounts) -> None:
        async with pool.slot("a"):
            with pytest.raises(ApiError, match=r"0\.01 s") as caught:
                async with pool.slot("b", 0.01):
                    raise AssertionError("not reached")
            assert caught.value.status == 503 and accounts.refused["thread_seconds"] == 1 and not len(pool)
            cancelled = asyncio.ensure_future(pool.slot("c").__aenter__())
            await asyncio.sleep(0)
            cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        async with pool.slot("b", 1):
            pass
        assert accounts.totals["thread_seconds"] > 0

    pooled(test, slots=1)


def test_clock_of_a_request_sums_its_waits_and_ends_all_of_them(clock):
    request = RequestClock(total=100.0, waiting=60.0)
    with request.waiting():
        clock[0] += 25.0
    clock[0] += 10.0  # computing
    assert (request.left, request.left_to_wait) == (65.0, 35.0)
    with request.waiting():
        clock[0] += 40.0
    assert request.left == 25.0 and request.left_to_wait < 0.01
    clock[0] += 40.0
    assert 0 < request.left < 0.01
