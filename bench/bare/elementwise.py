"""add, and a chain of small ops."""

from __future__ import annotations

import numpy as np

from ..problems import Problem
from .engine import Commands, Engine
from .templates import wgsl
from .variants import Variant, recorded

MAX_GROUPS = 65535  # in one dim
# (vectors of 4 an invocation adds, side by side or a grid apart, workgroup size)
ADD_SHAPES = [
    (each, together, workgroup)
    for each, together in ((1, True), (2, True), (4, True), (4, False), (8, False))
    for workgroup in (4, 8, 64, 256)
]


def add(engine: Engine, problem: Problem) -> list[Variant]:
    a, b = (np.ravel(problem.inputs[name]) for name in "ab")
    buffers = [engine.buffer(a.nbytes) for _ in range(3)]
    variants = []
    for each, together, workgroup in ADD_SHAPES:
        threads = a.size // 4 // each
        if a.size % (4 * each * workgroup) or threads // workgroup > MAX_GROUPS:
            continue
        code = wgsl("add", each=each, together=together, threads=threads, workgroup=workgroup)
        row = engine.dispatch(engine.pipeline(code), buffers, (threads // workgroup,))
        commands = Commands([row], [(buffers[0], a), (buffers[1], b)], [(buffers[2], a.nbytes)])
        order = "together" if together else "apart"
        variants.append(recorded(engine, f"{each} vec4 {order}, workgroup {workgroup}", commands))
    return variants


def chain(engine: Engine, problem: Problem) -> list[Variant]:
    """`length` dispatches in one pass: x + a and x * b in turn."""
    x = np.ravel(problem.inputs["x"])
    others = [engine.buffer(np.array(problem.weights[name])) for name in "ab"]
    variants = []
    for type_, workgroup in (("f32", 8), ("f32", 64), ("vec4<f32>", 8), ("vec4<f32>", 16)):
        for in_place in (True, False):
            codes = [
                wgsl("chain", type=type_, workgroup=workgroup, in_place=in_place, operator=operator)
                for operator in "+*"
            ]
            pipelines = [engine.pipeline(code) for code in codes]
            states = [engine.buffer(x.nbytes) for _ in range(1 if in_place else 2)]
            grid = (x.size // (4 if "vec4" in type_ else 1) // workgroup,)
            # x, other and (in place: nothing more) where it goes; two steps apart they are the same again.
            rows = []
            for step in range(2):
                here, there = states[step % len(states)], states[(step + 1) % len(states)]
                bound = [here, others[step]] if in_place else [here, others[step], there]
                rows.append(engine.dispatch(pipelines[step], bound, grid))
            commands = Commands(rows * (problem.size("length") // 2), [(states[0], x)], [(states[0], x.nbytes)])
            name = f"{type_} workgroup {workgroup}, {'in place' if in_place else 'to and fro'}"
            variants.append(recorded(engine, name, commands))
    return variants
