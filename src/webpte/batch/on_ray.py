"""Run a job on Ray Data: actors hold the model, and chunks of blocks are the rows of a dataset.

Ray schedules the chunks and restarts actors that die. An actor reads its rows and writes its blocks itself, so that
only names of blocks pass through Ray. A block that is computed twice has the same bytes under the same name.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from ..environment import variable
from ..errors import DeviceError, Error, UnsupportedError, error_of
from .tables import RowBlock
from .worker import BatchJob, BatchWorker, BlockStats

MIN_CHUNKS_PER_ACTOR = 4  # so that no actor waits long for the last one


@dataclass(frozen=True)
class Cluster:
    """Where actors run: in the cluster at `address`, or in one that is started for this job."""

    actors: int
    address: str | None = None
    resource: str | None = None  # each actor takes one unit of it
    gpus: bool = False  # each actor takes one of Ray's GPUs, and computes on the adapter with the same number


class Actor:
    """The class that each actor runs. Errors are returned like blocks: of an exception, Ray keeps only the text."""

    def __init__(self, job: BatchJob, gpus: bool) -> None:
        if gpus:
            (number,) = _ray().get_runtime_context().get_accelerator_ids()["GPU"]
            job = replace(job, adapter=int(number))
        self._job = job
        self._worker: BatchWorker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        blocks = [RowBlock(**fields) for text in batch["blocks"] for fields in json.loads(text)]
        results: list[dict[str, Any]] = []
        try:
            if self._worker is None:  # here, since this machine may not have the input
                self._worker = BatchWorker(self._job)
            results.extend(asdict(stats) for stats in self._worker.run(blocks))  # those before an error stay
        except Error as error:
            results.append({"error": type(error).__name__, "message": str(error), "reason": error.reason})
        return {"results": np.array([json.dumps(result) for result in results], object)}


def run_on_ray(job: BatchJob, blocks: Sequence[RowBlock], cluster: Cluster) -> Iterator[BlockStats]:
    """Yield the statistics of blocks as they are finished."""
    ray = _ray()
    started_here = not ray.is_initialized()
    if started_here:
        _start(ray, cluster)
    try:
        for row in _dataset(ray, job, blocks, cluster).iter_rows():
            yield block_stats(json.loads(row["results"]))
    except ray.exceptions.RayError as error:
        last_line = str(error).strip().splitlines()[-1]
        raise DeviceError(f"Ray failed: {last_line}", code="ray_failed", hint="Run again to resume.") from error
    finally:
        if started_here:
            ray.shutdown()


def block_stats(result: dict[str, Any]) -> BlockStats:
    """Return the statistics that an actor sent, or raise the error that it sent."""
    if "error" in result:
        raise error_of(result["error"], result["message"], result["reason"])
    return BlockStats(**(result | {"block": RowBlock(**result["block"])}))


def chunks(blocks: Sequence[RowBlock], actors: int) -> list[list[RowBlock]]:
    """Divide blocks among actors. A chunk is of one row group, which is then read once."""
    size = max(1, len(blocks) // (MIN_CHUNKS_PER_ACTOR * actors))
    divided = []
    for _, group in groupby(blocks, key=lambda block: (block.file, block.group)):
        members = list(group)
        divided += [members[first : first + size] for first in range(0, len(members), size)]
    return divided


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UnsupportedError(
            f"actors require Ray Data ({error})", code="missing_package", hint="Run: pip install 'webpte[ray]'."
        ) from error
    return ray


def _start(ray: Any, cluster: Cluster) -> None:
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray logs what it retries as an error
    options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if cluster.address is not None:
        options["address"] = cluster.address
    elif not variable("RAY_ADDRESS"):
        # Ray counts cores, and the device computes: start as many actors as requested on any number of cores.
        options |= {"include_dashboard": False, "num_cpus": max(cluster.actors + 1, os.cpu_count() or 1)}
        options |= {"num_gpus": cluster.actors} if cluster.gpus else {}
        options |= {"resources": {cluster.resource: cluster.actors}} if cluster.resource else {}
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises a plain Exception if a node does not start in time
        where = f"is unreachable at {cluster.address}" if cluster.address else "does not start on this machine"
        raise DeviceError(f"Ray {where}: {error}", code="ray_unreachable") from error


def _dataset(ray: Any, job: BatchJob, blocks: Sequence[RowBlock], cluster: Cluster) -> Any:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # the job has its own
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    items = [{"blocks": json.dumps([asdict(block) for block in chunk])} for chunk in chunks(blocks, cluster.actors)]
    options: dict[str, Any] = {"num_gpus": 1} if cluster.gpus else {}
    if cluster.resource is not None:
        options["resources"] = {cluster.resource: 1}
    return ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        Actor,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=cluster.actors),
        fn_constructor_kwargs={"job": job, "gpus": cluster.gpus},
        num_cpus=1,
        **options,
    )
