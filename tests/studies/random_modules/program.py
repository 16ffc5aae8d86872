"""A random program as data: it can be printed as Python, kept as JSON, and taken apart by the minimizer.

A method is a list of statements. A statement is a line of Python whose `{0}`, `{1}` stand for the values it takes, so
the program that is exported and the program that a person reads are the same text. No torch here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

Dim = int | str  # a size, or the symbol of a dynamic one
Sizes = dict[str, int]


@dataclass
class Input:
    """`fill` shows where its values come from: "normal", "bool", or "LOW:HIGH" for integers below HIGH."""

    name: str
    dtype: str
    dims: list[Dim]
    fill: str = "normal"

    def at(self, sizes: Sizes) -> list[int]:
        return [sizes[d] if isinstance(d, str) else d for d in self.dims]


@dataclass
class Buffer:
    """State of a module, and what it holds at first."""

    name: str
    dtype: str
    dims: list[int]
    fill: float = 0.0


@dataclass
class Block:
    """A branch of `torch.cond`."""

    params: list[str]
    statements: list[Statement]
    result: str


@dataclass
class Statement:
    """`results = code`, with the names of `args` in place of `{0}`, `{1}`. Branches are named then and other."""

    results: list[str]
    code: str
    args: list[str]
    branches: list[Block] = field(default_factory=list)

    def text(self) -> str:
        call = self.code.format(*self.args)
        return f"{', '.join(self.results)} = {call}" if self.results else call

    def members(self) -> set[str]:
        """Return the layers and buffers that it takes from its module."""
        inside = [name for block in self.branches for s in block.statements for name in s.members()]
        return {*re.findall(r"self\.(\w+)", self.code), *inside}


@dataclass
class Kind:
    """What a value is: its dtype and its dims, None where a dim is neither static nor a symbol."""

    dtype: str
    dims: list[int | str | None]


@dataclass
class Method:
    inputs: list[Input] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)  # name -> the expression that makes it
    buffers: list[Buffer] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    kinds: dict[str, Kind] = field(default_factory=dict)  # of the values made by statements

    def prune(self) -> None:
        """Drop what no output and no state depends on, then inputs, layers and buffers that nothing names."""
        needed = set(self.outputs)
        kept = []
        for statement in reversed(self.statements):
            if not statement.results or needed & set(statement.results):
                kept.append(statement)
                needed |= set(statement.args)
        self.statements = kept[::-1]
        members = {name for statement in self.statements for name in statement.members()}
        members |= {name.removeprefix("self.") for name in needed}
        self.inputs = [i for i in self.inputs if i.name in needed] or self.inputs[:1]
        self.layers = {name: text for name, text in self.layers.items() if name in members}
        self.buffers = [b for b in self.buffers if b.name in members]
        created = {name for statement in self.statements for name in statement.results}
        self.kinds = {name: kind for name, kind in self.kinds.items() if name in created}


@dataclass
class Lowering:
    """How a program is exported."""

    one_step: bool = False  # to_edge_transform_and_lower instead of to_edge and to_backend
    decompose: bool = False  # before it is given to ExecuTorch, as `webpte.export.lower` does
    dim_order: bool = False
    plan_inputs: bool = False  # alloc_graph_input
    blocklist: list[str] = field(default_factory=list)  # ops of the edge dialect to keep out of delegates
    force_fp16: bool = False


@dataclass
class Program:
    seed: int
    symbols: dict[str, list[int]] = field(default_factory=dict)  # name -> least and largest size
    traced: Sizes = field(default_factory=dict)  # the sizes it is exported with
    calls: list[Sizes] = field(default_factory=list)  # the sizes it is called with, the bounds first
    methods: dict[str, Method] = field(default_factory=dict)
    lowering: Lowering = field(default_factory=Lowering)

    def prune(self) -> None:
        for method in self.methods.values():
            method.prune()
        used = {d for m in self.methods.values() for i in m.inputs for d in i.dims if isinstance(d, str)}
        self.symbols = {name: limits for name, limits in self.symbols.items() if name in used}
        self.traced, *self.calls = (
            {name: size for name, size in sizes.items() if name in used} for sizes in (self.traced, *self.calls)
        )

    def sequences(self, method: str) -> list[list[tuple[int, Sizes]]]:
        """Numbered calls: runs that each begin with the file's state. Without state, one run is enough."""
        runs = [list(enumerate(self.calls))]
        if self.methods[method].buffers:
            runs.append([(len(self.calls) + i, sizes) for i, sizes in enumerate(self.calls[:2])])
        return runs

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Program:
        data = json.loads(text)
        data["methods"] = {name: _method(m) for name, m in data["methods"].items()}
        return cls(**data | {"lowering": Lowering(**data["lowering"])})

    def to_python(self) -> str:
        """Return all of it for a reader; `source` is what is run."""
        dims = ", ".join(f"{name} = Dim({name!r}, min={low}, max={high})" for name, (low, high) in self.symbols.items())
        lines = [
            f"# seed {self.seed}; {dims or 'all shapes are static'}",
            f"# exported at {self.traced} with {self.lowering}",
        ]
        for name, method in self.methods.items():
            taken = ", ".join(f"{i.name}: {i.dtype}{i.dims} {i.fill}" for i in method.inputs)
            lines += ["", f"# method {name} of ({taken}), called at {self.calls}", source(method, name.title())]
        return "\n".join(lines)


def _method(data: dict[str, Any]) -> Method:
    created = {
        "inputs": [Input(**i) for i in data["inputs"]],
        "buffers": [Buffer(**b) for b in data["buffers"]],
        "statements": [_statement(s) for s in data["statements"]],
        "kinds": {name: Kind(**kind) for name, kind in data["kinds"].items()},
    }
    return Method(**data | created)


def _statement(data: dict[str, Any]) -> Statement:
    blocks = [Block(b["params"], [_statement(s) for s in b["statements"]], b["result"]) for b in data["branches"]]
    return Statement(**data | {"branches": blocks})


def source(method: Method, name: str = "Module", noisy: bool = False) -> str:
    """Return the class of a method's module. `noisy` passes every result through `self.noise`."""
    lines = [f"class {name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    for number, (layer, text) in enumerate(method.layers.items()):
        # By its name: a layer keeps its weights when others are removed.
        seed = int(re.sub(r"\D", "", layer) or number)
        lines += [f"        torch.manual_seed({seed})", f"        self.{layer} = {text}"]
    for b in method.buffers:
        created = f"torch.full({b.dims}, {b.fill}, dtype=torch.{b.dtype})"
        lines.append(f"        self.register_buffer({b.name!r}, {created})")
    lines += ["", f"    def forward(self, {', '.join(i.name for i in method.inputs)}):"]
    lines += _indented(_lines(method.statements, noisy), 8)
    lines.append(f"        return ({', '.join(method.outputs)},)")
    return "\n".join(lines)


def _lines(statements: Iterable[Statement], noisy: bool) -> Iterator[str]:
    for statement in statements:
        for name, block in zip(("then", "other"), statement.branches, strict=False):
            yield f"def {name}({', '.join(block.params)}):"
            yield from _indented(_lines(block.statements, noisy), 4)
            yield f"    return {block.result}"
        yield statement.text()
        if noisy:
            yield from (f"{result} = self.noise({result})" for result in statement.results)


def _indented(lines: Iterable[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]
