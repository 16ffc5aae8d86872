"""What a device's features and limits mean for programs, and which kernels it would be given."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..graph import DType, Graph, Int
from ..plan import make_planner
from ..runtime.choices import read_choices
from ..wgsl import BROWSER_LIMITS, Caps
from .probes import Probe

# feature -> what it is for, and what happens without it
FEATURES = {
    "shader-f16": ("f16 tensors take two bytes an element", "f16 tensors take four, and each result is rounded to f16"),
    "subgroup": ("kernels may share values within a subgroup", "kernels that share values use workgroup memory"),
    "timestamp-query": ("profiles time the device by its own clock", "profiles time the device by the host's clock"),
}
# limit -> what it decides
LIMITS = {
    "max-storage-buffer-binding-size": "a weight beyond it is split where its op can, refused where it cannot",
    "max-buffer-size": "a tensor beyond it is refused",
    "max-storage-buffers-per-shader-stage": "tensors that one kernel reads and writes",
    "max-compute-invocations-per-workgroup": "workgroups are clamped to it",
    "max-compute-workgroup-size-x": "likewise",
    "max-compute-workgroup-storage-size": "memory that a workgroup shares",
    "max-compute-workgroups-per-dimension": "larger grids are folded",
}

WIDTH, GROUP = 512, 32  # of typical layers


def features(offered: Collection[str]) -> list[dict[str, Any]]:
    """Every optional feature we use: whether it is there, and what follows."""
    return [
        {"name": name, "offered": name in offered, "effect": with_it if name in offered else without}
        for name, (with_it, without) in FEATURES.items()
    ]


def limits(caps: Caps) -> list[dict[str, Any]]:
    """Every limit that matters to us, beside what a browser grants."""
    return [
        {"name": name, "offered": caps.limit(name), "browser": BROWSER_LIMITS[name], "decides": what}
        for name, what in LIMITS.items()
    ]


def variants(caps: Caps) -> list[dict[str, Any]]:
    """Where ops can choose between kernels: which one typical shapes get here, and which others there are."""
    measured = read_choices(caps)
    found: dict[str, dict[str, Any]] = {}
    for rows in (1, 128):
        for job in make_planner(_typical(rows), caps, (), tuning=measured).examples:
            best = measured.get(job.key)
            chosen = best if best in job.names else job.names[0]
            found[job.key] = {
                "family": job.family,
                "shape": " ".join(map(str, job.shape)),
                "chosen": chosen,
                "why": "the fastest, measured" if best == chosen else f"the first choice for a {caps.kind.upper()}",
                "others": [name for name in job.names if name != chosen],
            }
    return list(found.values())


def _typical(rows: int) -> Graph:
    """Layers of a language model over one token, as in decoding, or over many, as in a prompt."""
    b = Probe()
    x, weight = b.tensor(rows, WIDTH), b.tensor(WIDTH, WIDTH)
    linear = b.call("aten.linear.default", x, weight, b.null(), out=b.tensor(rows, WIDTH))
    codes, scales = b.tensor(WIDTH, WIDTH // 2, dtype=DType.UINT8), b.tensor(WIDTH // GROUP, WIDTH)
    group = b.add(Int(GROUP))
    q4 = b.call("et_vk.linear_q4gsw.default", x, codes, scales, group, b.null(), out=b.tensor(rows, WIDTH))
    query, key, value = b.tensor(1, 8, rows, 64), b.tensor(1, 8, 256, 64), b.tensor(1, 8, 256, 64)
    heads = b.tensor(1, 8, rows, 64)
    attended = b.call("et_vk.sdpa.default", query, key, value, b.null(), b.null(), out=heads)
    return b.graph([x, weight, codes, scales, query, key, value], [linear, q4, attended])
