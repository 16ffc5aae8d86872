"""What ten thousand people who chat would need: a section of docs/scale.md, from the rates that the page predicts and
from what `python -m tests.serving streams` measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SECTION = Path(__file__).with_name("chats_section.md")
MEASURED = Path(__file__).with_name("chats.json")  # by hand, from what `python -m tests.serving streams` printed
CHATS = 10_000
ANSWER = 200  # tokens of it
PROMPT = 300  # tokens of a turn that are in no cache
PAUSE = 60.0  # seconds in which a person reads and writes
LEAST_RATE = 10.0  # tokens a second of one stream: faster than most people read
CONTEXT = 1024
MOST = 256  # streams of one device
MEMORY = {"Apple M4 Pro": 16, "Intel Arc B580": 12, "AMD Radeon RX 7900 XTX": 24}  # GB for models; half of a Mac's
RESTARTED = 32  # streams of a worker that is started again
EVENT_BYTES = 300  # of a token in a stream, as JSON
Rate = Callable[[str, int], tuple[float, float]]  # tokens a second of a device with so many streams, low and high


class Sizing(NamedTuple):
    """Of one device, cautious and hopeful."""

    streams: tuple[int, int]  # at once, each fast enough
    reading: tuple[float, float]  # share of its time for prompts
    devices: tuple[int, int]


def active() -> int:
    """Streams at any moment, if each is as fast as the least."""
    writing = ANSWER / LEAST_RATE
    return round(CHATS * writing / (writing + PAUSE))


def sizing(device: str, rate: Rate, flops: tuple[float, float], per_token: float, fits: int) -> Sizing:
    """`flops` a second that prompts reach; `per_token` of them for a token; `fits` streams in memory."""
    turns = 1 / (ANSWER / LEAST_RATE)  # of a stream, each second
    streams, reading, devices = [], [], []
    for end in (0, 1):
        for count in range(min(fits, MOST), 0, -1):
            share = count * turns * PROMPT * per_token / flops[end]
            if share < 1 and rate(device, count)[end] * (1 - share) / count >= LEAST_RATE:
                break
        streams.append(count)
        reading.append(share)
        devices.append(-(-active() // count))
    return Sizing((streams[0], streams[1]), (reading[0], reading[1]), (devices[0], devices[1]))


def section(rate: Rate, flops: Callable[[str], tuple[float, float]], weights: int, cache: int, nbytes: float) -> str:
    """Of a model with so many weights, bytes of cache for a stream, and bytes of its own."""
    lines, restarts = [], []
    for device, memory in MEMORY.items():
        fits = int((memory * 1e9 * 0.9 - nbytes) / cache)
        found = sizing(device, rate, flops(device), 2.0 * weights, fits)
        restarts.append(RESTARTED * 500 * 2.0 * weights / flops(device)[0])
        lines.append(
            f"| {device} | {memory} | {fits} | {found.streams[0]} to {found.streams[1]} | "
            f"{found.reading[0]:.0%} to {found.reading[1]:.0%} | {found.devices[0]} to {found.devices[1]} |"
        )
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    streams = [
        f"| {row['streams']} | {row['engine']:.1f} | {row['http']:.1f} | {row['http'] / row['engine'] - 1:+.1%} | "
        f"{row['http'] / measured['rows'][0]['http']:.2f} |"
        for row in measured["rows"]
    ]
    listener = measured["listener_milliseconds"]
    return SECTION.read_text(encoding="utf-8").format(
        about=measured["about"],
        measured="\n".join(streams),
        listener=listener,
        listener_rate=1000 / listener,
        chats=CHATS,
        answer=ANSWER,
        prompt=PROMPT,
        pause=PAUSE,
        least=LEAST_RATE,
        seconds=ANSWER / LEAST_RATE,
        context=CONTEXT,
        active=active(),
        tokens=active() * LEAST_RATE,
        cache=cache / 1e6,
        model=nbytes / 1e6,
        devices="\n".join(lines),
        streams=RESTARTED,
        restart_low=min(restarts),
        restart_high=max(restarts),
        event=EVENT_BYTES,
        traffic=active() * LEAST_RATE * EVENT_BYTES / 1e6,
        cores=active() * LEAST_RATE * listener / 1000,
    )
