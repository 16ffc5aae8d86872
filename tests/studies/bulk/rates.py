"""Measure how fast rows are embedded: by a loop, by a job in one process, and by actors of Ray."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from tests.support.harness.bulk import contents, read, start_batch, vectors, write_parquet
from webpte.batch import run
from webpte.batch.output import block_name
from webpte.batch.tables import InputTables
from webpte.embed import Embedder

from .workload import Figures, encoder, print_report, sentences, table, timed_run

MIN_RATIO, MAX_PADDING, MIN_COSINE = 0.9, 0.12, 0.99999


def hand(folder: Path, options: argparse.Namespace) -> Figures:
    """A job in one process against the same batches by hand, in turns; models are loaded before the time counts."""
    model, values = encoder(options), sentences(options, options.rows)
    source = write_parquet(folder / "texts.parquet", values)
    ratios: list[tuple[float, float]] = []
    for turn in range(options.turns):
        calls = [
            lambda: timed_run(model, source, folder / f"turn{turn}", block_rows=options.block)[1:],  # noqa: B023
            lambda: by_hand(model, values, options.block),
        ]
        order = (1, 0) if turn % 2 else (0, 1)  # neither always follows the other
        taken = {number: calls[number]() for number in order}
        (job, job_spent), (hand, hand_spent) = taken[0], taken[1]
        ratios.append((hand / job, hand_spent / job_spent))
        rates = f"{len(values) / job:.1f} rows/s, by hand {len(values) / hand:.1f}"
        print(
            f"turn {turn + 1}: {rates}; in seconds of processors {job_spent:.1f}, by hand {hand_spent:.1f}", flush=True
        )
    clock, spent = np.median(ratios, axis=0).tolist()
    print(f"rate of one process / by hand: {clock:.3f} by the clock, {spent:.3f} by what processors spent; medians")
    assert spent >= MIN_RATIO, ratios  # the device is this process; the clock shows what else the machine does
    return {"rows": options.rows, "turns": options.turns, "ratio": spent, "clock": clock}


def by_hand(model: Path, values: list[str], block: int) -> tuple[float, float]:
    """Embed the same batches without tables, names and files."""
    with Embedder.load(model) as embedder:
        started, spent = time.perf_counter(), time.process_time()
        for first in range(0, len(values), block):
            embedder(values[first : first + block])
        return time.perf_counter() - started, time.process_time() - spent


def embed(folder: Path, options: argparse.Namespace) -> Figures:
    """A job in one process, then by two actors: the same rows in the same order, and little padding."""
    model, source = encoder(options), table(folder, options)
    alone = run(model, source, folder / "alone", block_rows=options.block)
    print_report("one process", alone)
    assert alone.failed == 0 and (options.tiny or alone.padding <= MAX_PADDING), alone
    many = run(model, source, folder / "actors", block_rows=options.block, actors=2)
    print_report("two actors", many)
    left, right = read(folder / "alone"), read(folder / "actors")
    assert left["id"].to_pylist() == right["id"].to_pylist() == list(range(options.rows))
    a, b = vectors(left), vectors(right)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    same = contents(folder / "alone") == contents(folder / "actors")
    print(f"rows in order; least cosine {cosines.min():.7f}; folders byte for byte equal: {same}")
    assert cosines.min() >= MIN_COSINE and same
    stored = sum(file.stat().st_size for file in (folder / "alone").rglob("*") if file.is_file())
    return {
        "rows": options.rows,
        "padding": alone.padding,
        "bytes_in": source.stat().st_size / options.rows,
        "bytes_out": stored / options.rows,
    }


def names(folder: Path, options: argparse.Namespace) -> Figures:
    """Measure a run that finds all blocks: it reads the rows of each and computes its name, on one core."""
    random = np.random.default_rng(0)
    values = ["".join(chr(97 + code) for code in random.integers(0, 26, options.bytes)) for _ in range(options.rows)]
    inputs = InputTables(write_parquet(folder / "documents.parquet", values, row_group=options.rows).parent)
    taken = []
    for _ in range(options.turns):
        started = time.process_time()
        for block in inputs.blocks(options.rows):
            block_name(block, InputTables(inputs.folder).read(block), "job")
        taken.append(time.process_time() - started)
    rate = options.rows / float(np.median(taken))
    print(f"{rate:.0f} rows/s of {options.bytes} bytes are read and named by a core")
    return {"bytes": options.bytes, "rate": rate}


def crossover(folder: Path, options: argparse.Namespace) -> Figures:
    """Measure one process and two actors on devices of their own; a software device has one of two cores here."""
    os.environ["LP_NUM_THREADS"] = "1"
    return _commands(folder, options)


def shared(folder: Path, options: argparse.Namespace) -> Figures:
    """Measure one process and two actors on the same device, or on software devices that use all cores."""
    return _commands(folder, options)


def _commands(folder: Path, options: argparse.Namespace) -> Figures:
    """Seconds of the whole command, by rows."""
    model, seconds = encoder(options), dict[int, dict[str, float]]()
    for rows in options.sizes:
        source = write_parquet(folder / f"{rows}.parquet", sentences(options, rows))
        for name, more in (("one process", []), ("two actors", ["--actors", 2])):
            started = time.perf_counter()
            child = start_batch(model, source, folder / f"{rows}-{name}", "--block-rows", options.block, *more)
            _, said = child.communicate()
            seconds.setdefault(rows, {})[name] = time.perf_counter() - started
            assert child.returncode == 0, said.decode()
            last = said.decode().strip().splitlines()[-1]
            print(f"{rows} rows, {name}: {seconds[rows][name]:.1f} s; {last}", flush=True)
        assert contents(folder / f"{rows}-one process") == contents(folder / f"{rows}-two actors")
    return {"seconds": seconds}
