"""Actors and drivers that are killed: no row is lost, none is there twice, and the bytes are those of a quiet run."""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading
import time
from pathlib import Path

from tests.support.harness.bulk import actor_processes, contents, kill_when, read, start_batch
from webpte.batch import run

from .workload import blocks_in, encoder, print_report, table


def actors(folder: Path, options: argparse.Namespace) -> None:
    """SIGKILL to one of two actors each time some more blocks are there."""
    model, source = encoder(options), table(folder, options)
    print_report("undisturbed", run(model, source, folder / "alone", block_rows=options.block))
    blocks, out, killed = blocks_in(folder / "alone"), folder / "killed", set[int]()

    def kill() -> None:
        for turn in range(options.kills):
            while blocks_in(out) < blocks * (turn + 1) // (options.kills + 1):
                time.sleep(0.02)
            while not (running := [pid for pid in actor_processes() if pid not in killed]):
                time.sleep(0.02)
            killed.add(running[0])
            os.kill(running[0], signal.SIGKILL)
            print(f"killed actor {running[0]} at {blocks_in(out)} of {blocks} blocks", flush=True)

    threading.Thread(target=kill, daemon=True).start()
    print_report("with kills", run(model, source, out, block_rows=options.block, actors=2))
    ids = read(out)["id"].to_pylist()
    print(f"{len(killed)} kills; {options.rows - len(set(ids))} rows lost, {len(ids) - len(set(ids))} doubled")
    assert len(killed) == options.kills and ids == list(range(options.rows))
    assert contents(out) == contents(folder / "alone")


def driver(folder: Path, options: argparse.Namespace) -> None:
    """The command, alone or with actors, is killed at random moments and started again; at last it is left alone."""
    model, source = encoder(options), table(folder, options)
    print_report("undisturbed", run(model, source, folder / "alone", block_rows=options.block))
    blocks, out = blocks_in(folder / "alone"), folder / "killed"
    moments, each = random.Random(options.seed), blocks / (options.kills + 1)
    for turn in range(options.kills):
        before = stamps(out)
        more = ["--actors", options.actors] if options.actors else []
        child = start_batch(model, source, out, "--block-rows", options.block, *more)
        # In some turns before the first block of its own is there, in some after it: blocks are left for every turn.
        expected = min(blocks_in(out) + moments.randint(0, round(each)), round(each * (turn + 1)))
        delay = moments.uniform(0, options.within)

        def reached(expected: int = expected, delay: float = delay) -> bool:
            if there := blocks_in(out) >= expected:
                time.sleep(delay)
            return there

        assert kill_when(child, reached), "it had ended, so nothing was killed; give more rows"
        limit = time.monotonic() + 120
        while actor_processes():  # what the driver has left ends by itself
            assert time.monotonic() < limit, actor_processes()
            time.sleep(0.1)
        after = stamps(out)
        assert before.items() <= after.items(), "a finished block was written again"
        print(f"kill {turn + 1}: {len(before)} blocks before it, {len(after)} behind it", flush=True)
    there = blocks_in(out)
    report = run(model, source, out, block_rows=options.block)
    print_report("the last run", report)
    assert report.reused_blocks == there and contents(out) == contents(folder / "alone")
    print(f"{there} of {report.blocks} blocks were found, the rest computed; the folders are byte for byte equal")


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Which file each finished block is, and when it was written."""
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("g*.parquet")}
