"""What a device can do at most, measured: bytes moved by a copy, and fused multiply-adds on values it already has."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..wgsl import Kernel, Uniforms, grid_for, home_of, u32
from .gpu import Gpu
from .parameters import Parameters
from .recording import Row
from .timing import DispatchClock
from .weights import USAGE

FOLDER = os.path.dirname(os.path.abspath(__file__))
WORKGROUP = 64
COPIED = 32 << 20  # larger than caches, smaller than any device's binding limit
THREADS = 1 << 14
STEPS = 256
FLOPS_PER_STEP = 8 * 4 * 2  # eight sums of vec4, each a multiplication and an addition
ROUNDS = 6  # the fastest counts; the first may compile


class NoParams(Uniforms):
    """Just `threads`."""


class Fma(Uniforms):
    steps: u32


COPY = Kernel(home_of(FOLDER), "peak_copy.wgsl", (), NoParams.wgsl, WORKGROUP, 1, 1)
FMA = Kernel(home_of(FOLDER), "peak_fma.wgsl", (), Fma.wgsl, WORKGROUP, 1, 1)


@dataclass(frozen=True)
class Peak:
    """Measured limits of a device."""

    bytes_per_second: float  # read and written
    flops_per_second: float  # f32


def measure_peak(gpu: Gpu) -> Peak:
    """Takes a fraction of a second. Memory is taken for the time of the measurement."""
    copy = _seconds(gpu, COPY, NoParams(), COPIED // 16, COPIED)
    fma = _seconds(gpu, FMA, Fma(steps=STEPS), THREADS, THREADS * 16)
    return Peak(2 * COPIED / copy, THREADS * STEPS * FLOPS_PER_STEP / fma)


def _seconds(gpu: Gpu, kernel: Kernel, params: Uniforms, threads: int, nbytes: int) -> float:
    """The fastest of several runs."""
    parameters = Parameters(gpu)
    source, target = (gpu.create_buffer(name, nbytes, USAGE) for name in ("peak source", "peak target"))
    try:
        (uniforms,) = parameters.groups([params.pack(threads)])
        layout, _ = gpu.storage_layout(kernel.reads, kernel.writes)
        storage = gpu.create_bind_group(layout, [(source, 0, nbytes), (target, 0, nbytes)])
        grid = grid_for(threads, kernel.workgroup, gpu.caps.workgroups_per_dimension)
        row = Row(gpu.pipeline(kernel), uniforms, storage, *grid)
        clock = DispatchClock(gpu)
        for _ in range(ROUNDS):
            clock.submit([((), gpu.recorder.prepare([row]))])
            gpu.wait()
        return min(end - begin for begin, end in clock.take()) / 1e9
    finally:
        source.destroy()
        target.destroy()
        parameters.close()
