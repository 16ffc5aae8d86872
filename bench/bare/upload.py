"""Bytes from host memory into buffers that were never used before, as loading a model does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..problems import Array, Problem
from .engine import STORAGE, Commands, Engine
from .variants import Variant

TAIL = 64  # bytes that are read back, to see that all have arrived


def upload(engine: Engine, problem: Problem) -> list[Variant]:
    data = problem.inputs["data"]
    return [Variant(name, partial(_fresh, engine, data, write)) for name, write in _ways(engine).items()]


def _ways(engine: Engine) -> dict[str, Callable[[object, Array], None]]:
    def in_pieces(piece: int) -> Callable[[object, Array], None]:
        return lambda buffer, data: engine.upload(buffer, data, piece)

    def at_once(buffer: object, data: Array) -> None:
        engine.run(Commands([], [(buffer, data)]))

    ways = {f"pieces of {mb} MB, each flushed": in_pieces(mb << 20) for mb in (1, 2, 4, 8, 16, 64)}
    return {**ways, "one write": at_once}


def _fresh(engine: Engine, data: Array, write: Callable[[object, Array], None]) -> list[Array]:
    buffer = engine.device.create_buffer(size=data.nbytes, usage=STORAGE)
    write(buffer, data)
    tail = engine.device.create_buffer(size=TAIL, usage=STORAGE)
    encoder = engine.device.create_command_encoder()
    encoder.copy_buffer_to_buffer(buffer, data.nbytes - TAIL, tail, 0, TAIL)
    engine.device.queue.submit([encoder.finish()])
    (read,) = engine.run(Commands([], [], [(tail, TAIL)]))
    buffer.destroy()
    return [read.view(np.float32)]
