"""4-bit weights in groups of 32, with f32 activations: y = x W^T, W = scale * (code - 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..problems import Array, Problem
from .engine import Commands, Dispatch, Engine
from .linear import Kernel
from .templates import wgsl
from .variants import Variant, recorded

# (template, rows an invocation owns, workgroup size)
GEMV = [
    ("rows", 1, 8), ("rows", 2, 8), ("rows", 4, 8),
    ("broadcast", 1, 8), ("broadcast", 2, 8), ("broadcast", 4, 8), ("broadcast", 8, 8), ("broadcast", 4, 32),
]  # fmt: skip
STACK = ("q", "k", "v", "o", "gate", "up", "down")  # the linear layers of a Llama block


def pack(codes: Array) -> Array:
    """(N, K) codes of 0 to 15 to (N, K / 8) words, the first code in the lowest bits."""
    pairs = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return np.ascontiguousarray(pairs.astype(np.uint8)).view(np.uint32)


def weight_buffers(engine: Engine, codes: Array, scales: Array) -> list[Any]:
    return [engine.buffer(pack(np.asarray(codes))), engine.buffer(np.ascontiguousarray(np.asarray(scales).T))]


def q4_linear(engine: Engine, problem: Problem) -> list[Variant]:
    x, codes = problem.inputs["x"], problem.weights["codes"]
    (M, K), N = x.shape, codes.shape[0]
    xb, yb = engine.buffer(x.nbytes), engine.buffer(M * N * 4)
    buffers = [*weight_buffers(engine, codes, problem.weights["scales"]), xb, yb]
    variants = []
    for name, code, grid in [q4_gemv(N, K, *shape) for shape in GEMV] if M == 1 else q4_gemm(M, N, K):
        row = engine.dispatch(engine.pipeline(code, name), buffers, grid)
        variants.append(recorded(engine, name, Commands([row], [(xb, x)], [(yb, M * N * 4)])))
    return variants


def q4_gemv(N: int, K: int, template: str, rows: int, workgroup: int) -> Kernel:
    code = wgsl(f"q4_gemv_{template}", rows=rows, workgroup=workgroup, N=N, K=K)
    how = "x handed round, " if template == "broadcast" else ""
    return f"{rows} rows an invocation, {how}workgroup {workgroup}", code, (N // rows // workgroup,)


def q4_gemm(M: int, N: int, K: int) -> list[Kernel]:
    size = {"N": N, "K": K}
    kernels: list[Kernel] = []
    for rows, columns in ((2, 8), (4, 4), (4, 8)):
        code = wgsl("q4_gemm_tile", rows=rows, columns=columns, **size)
        kernels.append((f"tile {rows}x{columns}", code, (N // columns // 8, M // rows)))
    for rows, columns in ((8, 2), (8, 4), (16, 2), (16, 4), (8, 8)):
        for scaled in (True, False):
            code = wgsl("q4_gemm_broadcast", rows=rows, columns=columns, scaled=scaled, **size)
            name = f"subgroup tile {rows}x{columns}, {'weights scaled first' if scaled else 'groups scaled'}"
            kernels.append((name, code, (N // columns // 8, M // rows)))
    return kernels


def q4_stack(engine: Engine, problem: Problem) -> list[Variant]:
    """Return all matrices that one token of a Llama meets, in one submit: what its linear layers cost when run bare."""
    names = [f"{layer}.{part}" for layer in range(problem.size("layers")) for part in STACK] + ["head"]
    weights = {
        name: weight_buffers(engine, problem.weights[f"{name}.codes"], problem.weights[f"{name}.scales"])
        for name in names
    }
    shapes = {name: problem.weights[f"{name}.codes"].shape for name in names}
    inputs = {x.shape[1]: (engine.buffer(x.nbytes), x) for x in problem.inputs.values()}
    outputs = {part: engine.buffer(shapes[f"0.{part}"][0] * 4) for part in STACK}
    outputs["head"] = engine.buffer(shapes["head"][0] * 4)
    reads = [(outputs[part], shapes[name][0] * 4) for part, name in zip([*STACK, "head"], names[-8:], strict=True)]
    variants = []
    for shape in GEMV:
        kernels = {(N, K): q4_gemv(N, K, *shape) for N, K in set(shapes.values())}
        if any(N % (shape[1] * shape[2]) for N, _ in kernels):
            continue
        pipelines = {size: engine.pipeline(code, name) for size, (name, code, _) in kernels.items()}
        rows: list[Dispatch] = []
        for name in names:
            size = shapes[name]
            buffers: Sequence[Any] = (*weights[name], inputs[size[1]][0], outputs[name.split(".")[-1]])
            rows.append(engine.dispatch(pipelines[size], buffers, kernels[size][2]))
        commands = Commands(rows, list(inputs.values()), reads)
        variants.append(recorded(engine, next(iter(kernels.values()))[0], commands))
    return variants
