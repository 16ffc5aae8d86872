"""Clients: how they are distinguished, and the order in which they get slots."""

from __future__ import annotations

import asyncio

import pytest

from webpte.serve.clients import ClientTurns, FairQueue, client_of_address


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::1", "::1", True),
        ("", "/run/webpte.sock", False),
    ],
)
def test_addresses_of_one_network_are_one_client(one, other, same):
    assert (client_of_address(one) == client_of_address(other)) == same


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


def test_turns_of_one_client_follow_each_other_and_those_of_others_do_not():
    async def run() -> list[str]:
        turns, events, go = ClientTurns(), [], asyncio.Event()

        async def one(client: str) -> None:
            async with turns.turn(client):
                events.append(client)
                await go.wait()

        tasks = [asyncio.ensure_future(one(client)) for client in "aab"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        before = list(events)
        go.set()
        await asyncio.gather(*tasks)
        assert events == ["a", "b", "a"] and not turns._locks
        return before

    assert asyncio.run(run()) == ["a", "b"]
