"""A job through Ray Data: actors hold the model, and stretches of blocks are the rows of a dataset.

Ray schedules them, and starts again what dies. An actor reads its rows and writes its blocks itself, so that nothing
but names goes through Ray; a block that is made twice is made with the same bytes under the same name.
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

from ..errors import DeviceError, Error, UnsupportedError
from ..llm.errors import error_of
from .tables import Block
from .worker import Job, Receipt, Worker

STRETCHES = 4  # for each actor at least, so that none waits long for the last


@dataclass(frozen=True)
class Cluster:
    """Where actors run: in a cluster at `address`, or in one that is started here for the while."""

    actors: int
    address: str | None = None
    resource: str | None = None  # of which each actor takes one
    gpus: bool = False  # each actor takes a GPU of Ray's, and computes on the adapter of its number


class Actor:
    """What an actor of the pool runs. An error of ours is told as blocks are: of an exception Ray keeps its text."""

    def __init__(self, job: Job, gpus: bool) -> None:
        if gpus:
            (number,) = _ray().get_runtime_context().get_accelerator_ids()["GPU"]
            job = replace(job, adapter=int(number))
        self._job = job
        self._worker: Worker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        blocks = [Block(**fields) for text in batch["blocks"] for fields in json.loads(text)]
        told: list[dict[str, Any]] = []
        try:
            if self._worker is None:  # here, since this machine may have no such input
                self._worker = Worker(self._job)
            told.extend(asdict(receipt) for receipt in self._worker.run(blocks))  # those before an error stay
        except Error as error:
            told.append({"error": type(error).__name__, "message": str(error), "reason": error.reason})
        return {"told": np.array([json.dumps(one) for one in told], object)}


def run_on_ray(job: Job, blocks: Sequence[Block], cluster: Cluster) -> Iterator[Receipt]:
    """Receipts as blocks are finished."""
    ray = _ray()
    mine = not ray.is_initialized()
    if mine:
        _start(ray, cluster)
    try:
        for row in _dataset(ray, job, blocks, cluster).iter_rows():
            yield receipt_of(json.loads(row["told"]))
    except ray.exceptions.RayError as error:
        last = str(error).strip().splitlines()[-1]
        raise DeviceError(f"Ray has given up: {last}. Run again to go on where it was") from error
    finally:
        if mine:
            ray.shutdown()


def receipt_of(told: dict[str, Any]) -> Receipt:
    """A block that an actor has made; the error that it ended with is raised."""
    if "error" in told:
        raise error_of(told["error"], told["message"], told["reason"])
    return Receipt(**(told | {"block": Block(**told["block"])}))


def stretches(blocks: Sequence[Block], actors: int) -> list[list[Block]]:
    """Blocks that one actor makes in a row: of one row group, which is then read once, but enough for all actors."""
    most = max(1, len(blocks) // (STRETCHES * actors))
    found = []
    for _, group in groupby(blocks, key=lambda block: (block.file, block.group)):
        whole = list(group)
        found += [whole[first : first + most] for first in range(0, len(whole), most)]
    return found


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UnsupportedError(f"actors need Ray Data: pip install 'webpte[ray]' ({error})") from error
    return ray


def _start(ray: Any, cluster: Cluster) -> None:
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it calls what it retries an error
    options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if cluster.address is not None:
        options["address"] = cluster.address
    elif not os.environ.get("RAY_ADDRESS"):
        # What computes is a device, of which Ray knows nothing: as many actors as were asked for, whatever the cores.
        options |= {"include_dashboard": False, "num_cpus": max(cluster.actors + 1, os.cpu_count() or 1)}
        options |= {"num_gpus": cluster.actors} if cluster.gpus else {}
        options |= {"resources": {cluster.resource: cluster.actors}} if cluster.resource else {}
    try:
        ray.init(**options)
    except Exception as error:  # it raises that itself where a node does not start in time
        raise DeviceError(f"Ray cannot be reached at {cluster.address or 'this machine'}: {error}") from error


def _dataset(ray: Any, job: Job, blocks: Sequence[Block], cluster: Cluster) -> Any:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # there is one already
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    items = [{"blocks": json.dumps([asdict(block) for block in some])} for some in stretches(blocks, cluster.actors)]
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
