"""Actors and drivers that are killed: no row is lost, none is there twice, and the bytes are those of a quiet run."""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.harness.bulk import (
    actor_processes,
    contents,
    finished_rows,
    kept_rows,
    kill_when,
    read,
    start_batch,
    texts,
    wait_until,
    write_parquet,
)
from tests.support.models.example_models import talker
from webpte.batch import run
from webpte.text import shell_word

from .workload import Figures, blocks_in, encoder, print_report, table


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


def within(folder: Path, options: argparse.Namespace) -> Figures:
    """Jobs of one block, ended at random moments and started again until they are complete.

    Each row that the model finishes is logged before it is written to the journal. Rows are lost that are in the log
    and not in the journal.
    """
    model, source = talker() / "smollm2.pte", write_parquet(folder / "asks.parquet", texts(options.rows))
    settings: Any = {"settings": {"max_new_tokens": options.tokens}, "block_rows": options.rows}
    run(model, source, folder / "alone", **settings)
    moments = random.Random(options.seed)
    figures = {"ended": 0, "jobs": 0, "finished": 0, "lost": 0, "most_lost_at_once": 0, "wrong_messages": 0}
    while figures["ended"] < options.kills:
        out = folder / f"killed {figures['jobs']}"
        while not (out / "_manifest.json").exists():
            _end_once(model, source, out, options, moments, figures)
        assert contents(out) == contents(folder / "alone")
        figures["jobs"] += 1
    return figures


def _end_once(
    model: Path, source: Path, out: Path, options: argparse.Namespace, moments: random.Random, figures: Figures
) -> None:
    """Start the command, end it after a random number of further rows, and count the rows that are lost."""
    log = out.with_name("finished.log")
    log.unlink(missing_ok=True)
    before = len(kept_rows(out))
    arguments = ["--block-rows", options.rows, "--max-new-tokens", options.tokens]
    child = start_batch(model, source, out, *arguments, log=log)
    goal, delay = before + moments.randint(0, 8), moments.uniform(0, 0.3)
    wait_until(child, lambda: before + len(finished_rows(log)) >= goal)
    time.sleep(delay)
    ended = child.poll() is None
    child.send_signal(signal.SIGKILL if options.signal == "KILL" else signal.SIGINT)
    _, message = child.communicate()
    assert ended or child.returncode == 0, message.decode()
    kept, finished = kept_rows(out), finished_rows(log)
    if (out / "_manifest.json").exists() or list(out.rglob("g*.parquet")):
        return
    lost = len(finished - {row for _, row in kept})
    figures["ended"] += ended
    figures["finished"] += len(finished)
    figures["lost"] += lost
    figures["most_lost_at_once"] = max(figures["most_lost_at_once"], lost)
    if options.signal == "INT" and finished:
        said = f"[stopped: {len(kept)} of {options.rows} rows are kept in {shell_word(out)}."
        figures["wrong_messages"] += said not in message.decode()
    print(f"{len(kept)} rows kept, {len(finished)} of them new, {lost} lost", flush=True)


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Which file each finished block is, and when it was written."""
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("g*.parquet")}
