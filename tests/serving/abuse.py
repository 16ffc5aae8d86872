"""A normal client beside hostile ones: see `python -m tests.serving abuse`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.serving.asking import PERSON, in_schema
from tests.serving.hostile import CHAT, CLOSED, KINDS, MODEL, PLAIN, SPARE_FILES, TIMED_OUT, chat_body
from tests.serving.load import quiet, resident
from tests.support.harness.serving import Running, event_in

CONNECTIONS = 10_000
MAX_GAP_RATIO = 2.0
MAX_HEALTH_SECONDS = 0.1  # on an idle machine
MAX_GROWTH = 1.10
MAX_DISK_BYTES = 256 << 20  # of forms, in the temporary folder: the default of max_held_bytes
HEALTH_INTERVAL = 0.25  # seconds
ANSWER_TOKENS = 16
MEMORY_SAMPLES = 10  # half a second apart; the least counts
SETTLING_SECONDS = 75.0  # that memory has to be given back: slow clients are closed after 60
EXPLAINED = (503, 504)  # statuses that a server under attack may have, with a reason
NAMES = {CLOSED: "closed", TIMED_OUT: "open"}
NAMES_OF_KINDS = tuple(kind.name for kind in KINDS)


@dataclass
class Seen:
    """Measurements of a normal client."""

    answers: int = 0
    longest_gap: float = 0.0  # seconds from the request, or from a token, to the next token
    longest_health: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass
class KindResults:
    """Measurements of one kind of hostile clients."""

    kind: str
    sent: int
    statuses: Counter[int]
    unexplained: list[str]


@dataclass
class Abuse:
    """The figures of a run."""

    alone: Seen
    plain: Seen  # beside clients that ask for long answers
    beside: Seen
    kinds: list[KindResults]
    memory_before: int  # bytes of the server and all its processes
    memory_after: int
    disk_peak: int  # bytes in the temporary folder of the server
    disk_after: int


# -- the normal client -----------------------------------------------------------------------------------------------


async def behave(url: str, seconds: float) -> Seen:
    """Ask for short answers one after the other, and poll /health, for some seconds."""
    seen, until = Seen(), time.monotonic() + seconds
    await asyncio.gather(_ask(url, until, seen), _poll_health(url, until, seen))
    return seen


async def _ask(url: str, until: float, seen: Seen) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:
        while time.monotonic() < until:
            body = chat_body(f"Question {seen.answers}.", max_tokens=ANSWER_TOKENS, temperature=0, stream=True)
            try:
                await _answer(client, body, seen)
                seen.answers += 1
            except httpx.HTTPError as error:
                seen.failures.append(f"chat: {error!r}")


async def _answer(client: httpx.AsyncClient, body: dict[str, object], seen: Seen) -> None:
    last = time.monotonic()
    async with client.stream("POST", CHAT, json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            event = event_in(line)
            if event is not None and event["choices"][0]["delta"].get("content"):
                now = time.monotonic()
                seen.longest_gap = max(seen.longest_gap, now - last)
                last = now


async def _poll_health(url: str, until: float, seen: Seen) -> None:
    """Each poll has its own connection, as those of load balancers may."""
    async with httpx.AsyncClient(base_url=url, timeout=60, headers={"Connection": "close"}) as client:
        while time.monotonic() < until:
            started = time.monotonic()
            try:
                (await client.get("/health")).raise_for_status()
            except httpx.HTTPError as error:
                seen.failures.append(f"/health: {error!r}")
            seen.longest_health = max(seen.longest_health, time.monotonic() - started)
            await asyncio.sleep(HEALTH_INTERVAL)


# -- the server ------------------------------------------------------------------------------------------------------


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    parents = dict(_parents())
    results = [pid]
    for one in results:
        results += [child for child, parent in parents.items() if parent == one]
    return results


def _parents() -> Iterator[tuple[int, int]]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(status.parent.name), int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile


def tree_memory(pid: int) -> int:
    total = 0
    for one in process_tree(pid):
        try:
            total += resident(one)
        except OSError:
            continue
    return total


async def settled_memory(running: Running, limit: float, seconds: float) -> int:
    """Return the bytes of all processes of the server at rest: below `limit`, or the least within some seconds."""
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        await quiet(client)
    samples: list[int] = []
    until = time.monotonic() + seconds
    while len(samples) < MEMORY_SAMPLES or (min(samples) > limit and time.monotonic() < until):
        await asyncio.sleep(0.5)
        samples.append(tree_memory(running.pid))
    return min(samples)


def disk_use(folder: Path) -> int:
    """Return the bytes of all files in a folder, which others may remove meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(root) / name).stat().st_size
    return total


async def largest_disk_use(folder: Path, seconds: float) -> int:
    peak, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        peak = max(peak, disk_use(folder))
        await asyncio.sleep(0.5)
    return peak


# -- a run -----------------------------------------------------------------------------------------------------------


async def attack(url: str, seconds: float, connections: int, kinds: Sequence[str]) -> list[KindResults]:
    """Run the other clients in a process of their own."""
    command = (sys.executable, "-m", "tests.serving.hostile", url, str(seconds), str(connections), *kinds)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    assert child.returncode == 0, f"the hostile clients ended with status {child.returncode}"
    results = [json.loads(line) for line in output.splitlines()]
    counted = [Counter({int(status): count for status, count in one["statuses"].items()}) for one in results]
    return [
        KindResults(one["kind"], one["sent"], statuses, one["unexplained"])
        for one, statuses in zip(results, counted, strict=True)
    ]


async def press(
    running: Running,
    seconds: float,
    connections: int,
    settling: float,
    folder: Path,
    kinds: Sequence[str] = NAMES_OF_KINDS,
) -> Abuse:
    url, short = running.url, max(2.0, seconds / 5)
    await warm_up(url)
    alone = await behave(url, short)
    plain, _ = await asyncio.gather(behave(url, short), attack(url, short, 0, [PLAIN.name]))
    before = await settled_memory(running, 0, 0)
    beside, results, peak = await asyncio.gather(
        behave(url, seconds), attack(url, seconds, connections, kinds), largest_disk_use(folder, seconds)
    )
    after = await settled_memory(running, before * MAX_GROWTH, settling)
    return Abuse(alone, plain, beside, results, before, after, peak, disk_use(folder))


async def warm_up(url: str) -> None:
    """Let the server start everything that it keeps: slots, kernels, and the processes that compile schemas."""
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:
        (await client.post(CHAT, json=chat_body(response_format=in_schema(PERSON)))).raise_for_status()
        for _ in range(3):
            await asyncio.gather(*(client.post(CHAT, json=chat_body(max_tokens=32)) for _ in range(16)))


def wrong_answers(abuse: Abuse) -> list[str]:
    """Return what was wrong with the responses, however long they took."""
    wrong = [f"{one.kind} sent nothing" for one in abuse.kinds if not one.sent]
    for one in abuse.kinds:
        wrong += [
            f"{one.kind}: {count} responses of status {status}"
            for status, count in one.statuses.items()
            if status >= 500 and status not in EXPLAINED
        ]
        wrong += [f"{one.kind}: no reason in {text!r}" for text in one.unexplained]
    seen = (abuse.alone, abuse.plain, abuse.beside)
    wrong += [f"the normal client: {failure}" for each in seen for failure in each.failures]
    if not abuse.beside.answers:
        wrong.append("the normal client got no answer")
    return wrong


def broken_bounds(abuse: Abuse) -> list[str]:
    """Return which figures are beyond their bounds."""
    wrong = []
    if not abuse.beside.longest_gap <= MAX_GAP_RATIO * abuse.plain.longest_gap:
        wrong.append(f"the longest gap is more than {MAX_GAP_RATIO:g} x the one beside {PLAIN.clients} plain requests")
    if not abuse.beside.longest_health <= MAX_HEALTH_SECONDS:
        wrong.append(f"/health took more than {MAX_HEALTH_SECONDS:g} s")
    if abuse.disk_peak > MAX_DISK_BYTES or abuse.disk_after:
        wrong.append(f"the temporary folder had more than {MAX_DISK_BYTES >> 20} MB, or is not empty")
    if not abuse.memory_after <= MAX_GROWTH * abuse.memory_before:
        wrong.append(f"memory has grown by more than {MAX_GROWTH - 1:.0%}")
    return wrong


def print_figures(abuse: Abuse) -> None:
    print(f"{'kind':14} {'acts':>6}  responses by status")
    for one in abuse.kinds:
        statuses = ", ".join(f"{NAMES.get(status, status)} x {count}" for status, count in sorted(one.statuses.items()))
        print(f"{one.kind:14} {one.sent:6}  {statuses}")
    others = {"alone": abuse.alone, f"beside {PLAIN.clients} plain requests": abuse.plain, "beside these": abuse.beside}
    for where, seen in others.items():
        print(
            f"{where}: {seen.answers} answers, longest gap {seen.longest_gap:.3f} s, "
            f"longest /health {seen.longest_health:.3f} s"
        )
    print(f"longest gap beside these / beside plain ones: {abuse.beside.longest_gap / abuse.plain.longest_gap:.2f}")
    growth = abuse.memory_after / abuse.memory_before - 1
    print(f"memory: {abuse.memory_before / 1e6:.1f} MB before, {abuse.memory_after / 1e6:.1f} MB after ({growth:+.1%})")
    print(f"temporary folder: at most {abuse.disk_peak / 1e6:.1f} MB, {abuse.disk_after / 1e6:.1f} MB after")
    failed = sum(count for one in abuse.kinds for status, count in one.statuses.items() if status >= 500)
    forbidden = [status for one in abuse.kinds for status in one.statuses if status >= 500 and status not in EXPLAINED]
    print(f"responses of 500 and above: {failed}, of which other than 503 and 504: {len(forbidden)}", flush=True)


def run(
    path: str,
    seconds: float,
    connections: int = CONNECTIONS,
    settling: float = SETTLING_SECONDS,
    kinds: Sequence[str] = NAMES_OF_KINDS,
) -> Abuse:
    """Start a server, and return what was seen of it."""
    with tempfile.TemporaryDirectory() as name:
        place = {"TMPDIR": name}
        with Running(f"{MODEL}={path}", "--warmup", "--log-level", "error", environment=place) as running:
            return asyncio.run(press(running, seconds, connections, settling, Path(name), kinds))


def show(path: str, seconds: float, kinds: Sequence[str] = NAMES_OF_KINDS) -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + SPARE_FILES:
        print(f"{hard - SPARE_FILES:,} connections instead of {CONNECTIONS:,}: `ulimit -Hn` is {hard:,}")
    print(f"{len(kinds)} kinds of hostile clients for {seconds:g} s", flush=True)
    abuse = run(path, seconds, kinds=kinds)
    print_figures(abuse)
    wrong = wrong_answers(abuse) + broken_bounds(abuse)
    for line in wrong:
        print(f"WRONG: {line}")
    return int(bool(wrong))
