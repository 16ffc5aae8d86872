"""Bars as a person sees them: what a terminal shows at every moment, read by pyte."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyte

_BAR = re.compile(r"^(\S[^━╸╺─-]*?)\s*([━╸╺─-]{24})(.*?)\s*(\d+:\d\d:\d\d|-:--:--)$")


@dataclass(frozen=True)
class Bar:
    """A line of the screen, and how much of its bar is drawn in the color of what is done."""

    stage: str
    amount: str
    full: bool


def seen_bars(output: bytes, columns: int, rows: int = 24) -> dict[str, Bar]:
    """Return the last that was seen of each stage, byte by byte."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    last: dict[str, Bar] = {}
    for part in re.split(rb"(?<=\n)|(?=\x1b\[2K)|(?=\r)", output):
        stream.feed(part)
        for number, line in enumerate(screen.display):
            if match := _BAR.match(line.rstrip()):
                stage, bar, amount = match[1].strip(), match[2], match[3].strip()
                start = line.index(bar)
                colors = {screen.buffer[number][start + i].fg for i in range(len(bar))}
                last[stage] = Bar(stage, amount, bar == "━" * 24 and len(colors) == 1)
    return last


def left_on_screen(output: bytes, columns: int, rows: int = 24) -> list[str]:
    """Return what is still there when the program has ended."""
    screen = pyte.Screen(columns, rows)
    pyte.ByteStream(screen).feed(output)
    return [line.rstrip() for line in screen.display if line.strip()]
