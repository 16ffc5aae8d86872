"""Takes away from a program whatever it fails without. No torch here: whether it still fails is asked of the caller."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator

from .program import Input, Kind, Lowering, Method, Program

Fails = Callable[[Program], bool]
Change = Callable[[Program], object]


def minimize(program: Program, fails: Fails) -> Program:
    """The program as small as single changes make it, while `fails` holds for each on the way."""
    best = program
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in candidates(best):
            if size(candidate) < size(best) and fails(candidate):
                best, shrunk = candidate, True
                break
    return best


def size(program: Program) -> tuple[int, ...]:
    """Return what a reader has to look at, the worst first."""
    methods = program.methods.values()
    statements = [s for m in methods for s in m.statements]
    inner = sum(len(block.statements) for s in statements for block in s.branches)
    plain = Lowering()
    unusual = sum(getattr(program.lowering, name) != value for name, value in vars(plain).items())
    return (
        len(statements) + inner,
        sum(len(m.outputs) for m in methods),
        sum(len(m.inputs) for m in methods),
        unusual + len(program.lowering.blocklist),
        len(program.symbols),
        len(program.calls),
    )


def candidates(program: Program) -> Iterator[Program]:
    """Programs that are smaller by one step, the largest steps first."""
    for change in _changes(program):
        candidate = copy.deepcopy(program)
        change(candidate)
        candidate.prune()
        if all(method.outputs for method in candidate.methods.values()):
            yield candidate


def _changes(program: Program) -> Iterator[Change]:
    if len(program.methods) > 1:
        yield from (_without_method(name) for name in program.methods)
    for name, method in program.methods.items():
        for position, output in enumerate(method.outputs):
            yield _without_output(name, position)
            yield from (
                _earlier(name, position, arg) for s in method.statements if output in s.results for arg in s.args
            )
        for position, statement in enumerate(method.statements):
            if not statement.results:
                yield _without_statement(name, position)
            elif all(r in method.kinds and None not in method.kinds[r].dims for r in statement.results):
                yield _given(name, position)
            yield from (
                _replaced(name, statement.results[0], other)
                for other in _like(method, statement.results, statement.args)
            )
            yield from (
                _without_inner(name, position, number, inner)
                for number, block in enumerate(statement.branches)
                for inner in range(len(block.statements))
            )
    for option, value in vars(Lowering()).items():
        if getattr(program.lowering, option) != value:
            yield functools.partial(_with_option, option, value)
    for blocked in program.lowering.blocklist:
        yield functools.partial(_allowed, blocked)
    for symbol in program.symbols:
        yield _fixed(symbol)
    if len(program.calls) > 1:
        yield from (functools.partial(_without_call, number) for number in range(len(program.calls)))


def _with_option(option: str, value: object, program: Program) -> None:
    setattr(program.lowering, option, value)


def _allowed(blocked: str, program: Program) -> None:
    program.lowering.blocklist.remove(blocked)


def _without_call(number: int, program: Program) -> None:
    program.calls.pop(number)


def _without_method(name: str) -> Change:
    return lambda program: program.methods.pop(name)


def _without_output(name: str, position: int) -> Change:
    return lambda program: program.methods[name].outputs.pop(position)


def _earlier(name: str, position: int, arg: str) -> Change:
    """An output is what it was made of."""

    def change(program: Program) -> None:
        program.methods[name].outputs[position] = arg

    return change


def _without_statement(name: str, position: int) -> Change:
    return lambda program: program.methods[name].statements.pop(position)


def _given(name: str, position: int) -> Change:
    """Results become inputs."""

    def change(program: Program) -> None:
        method = program.methods[name]
        statement = method.statements.pop(position)
        for result in statement.results:
            kind = method.kinds[result]
            dims = [d for d in kind.dims if d is not None]
            method.inputs.append(Input(result, kind.dtype, dims, _filling(kind)))

    return change


def _filling(kind: Kind) -> str:
    if kind.dtype == "bool":
        return "bool"
    return "normal" if "float" in kind.dtype else "0:5"


def _like(method: Method, results: list[str], args: list[str]) -> list[str]:
    """Which arguments a statement's one result could be replaced by."""
    kinds = method.kinds | {i.name: Kind(i.dtype, list(i.dims)) for i in method.inputs}
    expected = kinds.get(results[0]) if len(results) == 1 else None
    return [
        a
        for a in dict.fromkeys(args)
        if expected is not None and kinds.get(a) == expected and None not in expected.dims
    ]


def _replaced(name: str, result: str, other: str) -> Change:
    def change(program: Program) -> None:
        method = program.methods[name]
        for statement in method.statements:
            statement.args = [other if a == result else a for a in statement.args]
        method.outputs = [other if o == result else o for o in method.outputs]

    return change


def _without_inner(name: str, position: int, number: int, inner: int) -> Change:
    """Return a branch without one of its statements, unless that was all of it."""

    def change(program: Program) -> None:
        block = program.methods[name].statements[position].branches[number]
        if len(block.statements) > 1:
            gone = block.statements.pop(inner)
            for statement in block.statements:
                statement.args = [gone.args[0] if a == gone.results[0] else a for a in statement.args]
            if block.result == gone.results[0]:
                block.result = gone.args[0]

    return change


def _fixed(symbol: str) -> Change:
    """A dynamic size becomes the one it is traced with."""

    def change(program: Program) -> None:
        size = program.traced[symbol]
        for method in program.methods.values():
            for inputs in method.inputs:
                inputs.dims = [size if d == symbol else d for d in inputs.dims]
            for kind in method.kinds.values():
                kind.dims = [size if d == symbol else d for d in kind.dims]

    return change
