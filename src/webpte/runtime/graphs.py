"""A method of a graph that is in no file: for single calls tried out by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..device import WeightBuffers, acquire, adapter_caps
from ..graph import Graph
from ..plan import make_planner
from .kernels import CpuKernels
from .method import Method


@contextmanager
def open_graph(graph: Graph) -> Iterator[Method]:
    """A method that runs `graph` on this machine's adapter, as it is: no pass is applied."""
    kernels = CpuKernels()
    planner = make_planner(graph, adapter_caps(), kernels)
    gpu = acquire(planner.plan.limits)
    weights = WeightBuffers(gpu)
    try:
        method = Method(planner, gpu, weights, kernels)
        try:
            yield method
        finally:
            method.close()
    finally:
        weights.close()
        gpu.release()
