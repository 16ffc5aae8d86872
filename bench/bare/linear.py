"""Matrix times vector and matrix times matrix, in f32: y = x W^T."""

from __future__ import annotations

from ..problems import Problem
from .engine import Commands, Engine
from .templates import wgsl
from .variants import Variant, recorded

Kernel = tuple[str, str, tuple[int, ...]]  # name, WGSL, grid


def linear(engine: Engine, problem: Problem) -> list[Variant]:
    x, w = problem.inputs["x"], problem.weights["weight"]
    (M, K), N = x.shape, w.shape[0]
    kernels = gemv(N, K) if M == 1 else gemm(M, N, K)
    buffers = [engine.buffer(w), engine.buffer(x.nbytes), engine.buffer(M * N * 4)]
    variants = []
    for name, code, grid in kernels:
        row = engine.dispatch(engine.pipeline(code, name), buffers, grid)
        commands = Commands([row], [(buffers[1], x)], [(buffers[2], M * N * 4)])
        variants.append(recorded(engine, name, commands))
    return variants


def gemv(N: int, K: int) -> list[Kernel]:
    size = {"N": N, "K": K}
    kernels: list[Kernel] = []
    for rows in (1, 2, 4, 8):
        name = f"{rows} rows an invocation"
        kernels.append((name, wgsl("gemv_rows", rows=rows, workgroup=8, **size), (N // rows // 8,)))
    kernels.append(("4 rows an invocation, workgroup 16", wgsl("gemv_rows", rows=4, workgroup=16, **size), (N // 64,)))
    for rows in (2, 4, 8):
        name = f"{rows} rows a subgroup"
        kernels.append((name, wgsl("gemv_lanes", rows=rows, dots=False, **size), (N // rows,)))
        kernels.append((f"{name}, dots", wgsl("gemv_lanes", rows=rows, dots=True, **size), (N // rows,)))
    for rows in (2, 4, 8):
        name = f"{rows} rows an invocation, x handed round"
        kernels.append((name, wgsl("gemv_shuffle", rows=rows, **size), (N // rows // 8,)))
    kernels.append(("4 rows a workgroup of 64, shared memory", wgsl("gemv_shared", rows=4, **size), (N // 4,)))
    return kernels


def gemm(M: int, N: int, K: int) -> list[Kernel]:
    size = {"N": N, "K": K}
    kernels: list[Kernel] = []
    for rows, columns in ((4, 4), (8, 4), (4, 8), (8, 8)):
        code = wgsl("gemm_tile", rows=rows, columns=columns, **size)
        kernels.append((f"tile {rows}x{columns}", code, (N // columns // 8, M // rows)))
    for rows, columns, workgroup in ((8, 2, 8), (8, 4, 8), (16, 2, 8), (16, 4, 8), (32, 2, 8), (16, 2, 32)):
        code = wgsl("gemm_broadcast", rows=rows, columns=columns, workgroup=workgroup, **size)
        name = f"subgroup tile {rows}x{columns}, workgroup {workgroup}"
        kernels.append((name, code, (N // columns // workgroup, M // rows)))
    kernels.append(("shared memory 32x32", wgsl("gemm_shared", **size), (N // 32, M // 32)))
    return kernels
