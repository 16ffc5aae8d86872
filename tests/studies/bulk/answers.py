"""Rows that a language model answers by a schema: every one judged, and how much sooner many at once are."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from numpy.typing import NDArray

from tests.support.harness.bulk import read, texts, write_parquet
from webpte.batch import Predictor

from .workload import print_report, timed_run

ANIMAL: dict[str, Any] = {"enum": ["cat", "dog", "none"]}
# What is forced is read many tokens at a time in any case, as a prompt is: only free tokens seem to gain by company.
SCHEMAS: dict[str, dict[str, Any]] = {
    "text": {"animal": ANIMAL, "story": {"type": "string", "minLength": 220, "maxLength": 260}},
    "words": {"animal": ANIMAL, "mood": {"enum": ["good", "bad"]}, "count": {"type": "integer", "maximum": 99}},
}
LEAST_GAIN = {"text": 1.2, "words": 0.5}  # on a software device


def generate(folder: Path, options: argparse.Namespace) -> None:
    """A job over all prompts, in parts; after each part some of its prompts again, one at a time.

    The schema `text` has a text of some 60 free tokens, and `words` nearly none.
    """
    asks = [f"{text}. Which animal is it about?" for text in texts(options.rows, mean=1.8)]
    size = -(-options.rows // options.parts)
    properties = SCHEMAS[options.schema]
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    settings = {"json_schema": schema, "max_new_tokens": 200}
    gains: list[NDArray[np.float64]] = []
    finished = 0
    with Predictor(options.model, settings=settings) as predictor:
        predictor({"text": asks[:1]})  # plans are made, as a job's are before its first rows count
        for first in range(0, options.rows, size):
            source = write_parquet(folder / f"asks{first}.parquet", asks[first : first + size])
            report, *at_once = timed_run(options.model, source, folder / f"answers{first}", settings=settings)
            print_report(f"rows from {first} on", report)
            result = read(folder / f"answers{first}").to_pylist()
            finished += judged(result, schema)
            if report.computed_rows:  # else the folder has them of an earlier run
                some = result[: options.alone]
                alone = np.array(one_at_a_time(predictor, some)) / len(some)
                gains.append(alone / (np.array(at_once) / len(result)))
                told_gain("of this part", gains[-1])
    print(f"{finished} of {options.rows} finished, and every one is valid")
    gain = np.median(gains, axis=0)
    told_gain("median of parts", gain)
    assert finished and gain[0] >= LEAST_GAIN[options.schema], gains


def told_gain(name: str, gain: NDArray[np.float64]) -> None:
    print(f"at once / one at a time, {name}: {gain[0]:.2f} by the clock, {gain[1]:.2f} by processors", flush=True)


def judged(rows: list[dict[str, Any]], schema: dict[str, Any]) -> int:
    """Return the number of finished rows; fail if one is invalid or has an error."""
    finished = [row for row in rows if row["finish_reason"] == "stop"]
    for row in finished:
        jsonschema.validate(json.loads(row["generated"]), schema)
    assert all(row["error"] is None for row in rows)
    return len(finished)


def one_at_a_time(predictor: Predictor, rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Return wall seconds and processor seconds of answering row by row; the answers must equal those of the rows."""
    started, spent = time.perf_counter(), time.process_time()
    alone = [predictor({"text": [row["text"]]})["generated"][0] for row in rows]
    taken = time.perf_counter() - started, time.process_time() - spent
    assert alone == [row["generated"] for row in rows]
    return taken
