"""Makes random programs: `make_program(seed)`.

A statement is proposed by one of the families, and tried at once by eager torch at all sizes the program will be called
with. What raises, overflows or grows out of hand is dropped and another one proposed, so nothing here has to know what
shape an operation gives.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from .module import FLOATS, answers, fill
from .names import NAMES
from .program import Block, Buffer, Dim, Input, Kind, Lowering, Method, Program, Sizes, Statement
from .threads import one_thread

LARGEST = {torch.float16: 50.0, torch.bfloat16: 1e3, torch.float32: 1e3, torch.float64: 1e3}
MOST_ELEMENTS = 4096
MOST_DIMS = 5
AMBIGUOUS = 0.3  # of an output's numbers, which noise turns into others: a program with more shows nothing
KEPT_OUT = (
    "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "relu.default", "sigmoid.default", "tanh.default",
    "gelu.default", "view_copy.default", "permute_copy.default", "cat.default", "slice_copy.Tensor",
    "select_copy.int", "expand_copy.default", "unsqueeze_copy.default", "squeeze_copy.dims", "clone.default",
    "mean.dim", "sum.dim_IntList", "amax.default", "_softmax.default", "linear.default", "addmm.default", "mm.default",
    "bmm.default", "convolution.default", "native_layer_norm.default", "embedding.default", "where.self",
    "full.default", "_to_copy.default", "gt.Scalar", "copy_.default", "index.Tensor",
)  # fmt: skip


@dataclass
class Value:
    """A value of the program being made, as it is at the sizes of the trace and of every call."""

    name: str
    tensors: list[torch.Tensor]
    dims: list[int | str | None]

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[0].dtype

    @property
    def rank(self) -> int:
        return self.tensors[0].dim()

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_int(self) -> bool:
        return not self.is_float and self.dtype != torch.bool

    def static(self, dim: int) -> int | None:
        size = self.dims[dim]
        return size if isinstance(size, int) else None

    def least(self, dim: int) -> int:
        return min(t.shape[dim] for t in self.tensors)


Propose = Callable[["Maker"], None]
FAMILIES: list[tuple[float, Propose]] = []


def family(weight: float) -> Callable[[Propose], Propose]:
    """Register a function that proposes a statement, chosen in proportion to its weight."""

    def register(propose: Propose) -> Propose:
        FAMILIES.append((weight, propose))
        return propose

    return register


@dataclass
class Maker:
    """One method under construction."""

    rng: random.Random
    symbols: dict[str, list[int]]
    sizes: list[Sizes]  # of the trace, then of the calls
    seed: int
    float_dtype: str
    method: Method = field(default_factory=Method)
    scope: list[Value] = field(default_factory=list)
    selves: list[SimpleNamespace] = field(default_factory=list)
    layers: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.selves = [SimpleNamespace() for _ in self.sizes]

    # -- choosing --------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def choose(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def pick(self, where: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """Return a value, oftener a late one."""
        fitting = [v for v in self.scope if where(v)]
        if not fitting:
            return None
        return self.choose(fitting[-3:] if self.chance(0.5) else fitting)

    def pick_float(self, rank: int = 0, where: Callable[[Value], bool] = lambda v: True) -> Value | None:
        return self.pick(lambda v: v.is_float and v.rank >= rank and where(v))

    def pick_like(self, value: Value) -> Value:
        """Of the same dims and dtype; itself if there is no other."""
        return self.pick(lambda v: v.dims == value.dims and None not in v.dims and v.dtype == value.dtype) or value

    # -- adding ----------------------------------------------------------------------------------------------------

    def name(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def add_input(self, dtype: str, dims: list[Dim], filling: str = "normal") -> Value:
        spec = Input(self.name("x"), dtype, dims, filling)
        self.method.inputs.append(spec)
        tensors = [fill(spec, sizes, f"{self.seed}.{i}") for i, sizes in enumerate(self.sizes)]
        self.scope.append(Value(spec.name, tensors, list(dims)))
        return self.scope[-1]

    def layer(self, text: str) -> str:
        """Return a layer or parameter; the name that statements call it by. Kept only if a statement does."""
        name = self.name("l")
        torch.manual_seed(int(name[1:]))
        result = eval(text, dict(NAMES))
        self.layers[name] = (text, result.eval() if isinstance(result, torch.nn.Module) else result)
        for own in self.selves:
            setattr(own, name, self.layers[name][1])
        return f"self.{name}"

    def buffer(self, dtype: str, dims: list[int], start: float = 0.0) -> str:
        state = Buffer(self.name("b"), dtype, dims, start)
        self.method.buffers.append(state)
        for own in self.selves:
            setattr(own, state.name, torch.full(dims, start, dtype=getattr(torch, dtype)))
        return f"self.{state.name}"

    def add(
        self, code: str, *args: Value | str | None, results: int = 1, branches: Sequence[Block] = ()
    ) -> list[Value] | None:
        """Try a statement at all sizes; its results join the scope, or None if it cannot stay."""
        if any(a is None for a in args):
            return None
        names = [a if isinstance(a, str) else a.name for a in args if a is not None]
        statement = Statement([self.name() for _ in range(results)], code, names, list(branches))
        try:
            created = [self._evaluate(statement, args, number) for number in range(len(self.sizes))]
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            return None
        if not all(acceptable(t) for call in created for t in call):
            return None
        values = [self._value(name, [call[i] for call in created]) for i, name in enumerate(statement.results)]
        for value in values:
            self.method.kinds[value.name] = Kind(str(value.dtype).removeprefix("torch."), value.dims)
        self.method.statements.append(statement)
        self.method.layers |= {n: self.layers[n][0] for n in statement.members() | set(names) if n in self.layers}
        self.method.layers |= {n[5:]: self.layers[n[5:]][0] for n in names if n[5:] in self.layers}
        self.scope += values
        return values

    def _evaluate(self, statement: Statement, args: Sequence[Value | str | None], number: int) -> list[torch.Tensor]:
        scope = dict(NAMES) | {"self": self.selves[number]}
        scope |= {a.name: a.tensors[number] for a in args if isinstance(a, Value)}
        for name, block in zip(("then", "other"), statement.branches, strict=False):
            exec(_function(name, block), scope)
        with torch.no_grad():
            if statement.branches:  # `torch.cond` would compile them
                return [scope[name](*(scope[a] for a in statement.args[1:])) for name in ("then", "other")][:1]
            result = eval(statement.code.format(*statement.args), scope)
        if not statement.results:
            return []
        results = [result] if len(statement.results) == 1 else list(result)
        return [t.clone() for t in results]

    def _value(self, name: str, tensors: list[torch.Tensor]) -> Value:
        dims: list[int | str | None] = []
        for sizes in zip(*(t.shape for t in tensors), strict=True):
            symbol = next((s for s in self.symbols if [at[s] for at in self.sizes] == list(sizes)), None)
            dims.append(symbol if symbol else sizes[0] if len(set(sizes)) == 1 else None)
        return Value(name, tensors, dims)


def _function(name: str, block: Block) -> str:
    body = [f"    {s.text()}" for s in block.statements] + [f"    return {block.result}"]
    return "\n".join([f"def {name}({', '.join(block.params)}):", *body])


def acceptable(tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor) or tensor.dim() > MOST_DIMS or not 0 < tensor.numel() <= MOST_ELEMENTS:
        return False
    if tensor.dtype in FLOATS:
        return bool(torch.isfinite(tensor).all()) and float(tensor.abs().max()) <= LARGEST[tensor.dtype]
    return tensor.dtype == torch.bool or int(tensor.abs().max() if tensor.dtype != torch.uint8 else 0) < 2**24


# ---------------------------------------------------------------- programs


def make_program(seed: int) -> Program:
    """Return a program that is a function of its seed alone."""
    from . import families  # noqa: F401  (they register themselves)

    for attempt in range(50):
        with one_thread():
            program = _attempt(seed, random.Random(f"{seed}.{attempt}"))
        if program is not None and tells_something(program):
            return program
    raise RuntimeError(f"seed {seed} gives no program that could be compared")


def _attempt(seed: int, rng: random.Random) -> Program | None:
    program = Program(seed, lowering=_lowering(rng))
    choose_sizes(program, rng)
    float_dtype = "float16" if rng.random() < 0.1 else "float32"
    names = ["forward"] if rng.random() < 0.9 else ["forward", "second"]
    for name in names:
        maker = Maker(rng, program.symbols, [program.traced, *program.calls], seed, float_dtype)
        _inputs(maker)
        _statements(maker)
        _outputs(maker)
        if not maker.method.outputs:
            return None
        program.methods[name] = maker.method
    program.prune()
    return program


def choose_sizes(program: Program, rng: random.Random) -> None:
    """Up to 3 symbols: the bounds, the sizes of the trace, and three smaller calls."""
    for number in range(rng.choice([0, 1, 1, 2, 2, 3])):
        program.symbols[f"s{number}"] = [rng.choice([1, 1, 2, 3]), rng.choice([7, 9, 11, 13]) + number]
    bounds = {name: high for name, (_, high) in program.symbols.items()}
    smaller = [{name: rng.randint(low, high - 1) for name, (low, high) in program.symbols.items()} for _ in range(2)]
    program.calls = [bounds, *smaller, {name: low for name, (low, _) in program.symbols.items()}]
    program.traced = {name: 4 + 2 * i for i, name in enumerate(program.symbols)}


def _lowering(rng: random.Random) -> Lowering:
    blocked = rng.sample(KEPT_OUT, rng.randint(1, 4)) if rng.random() < 0.3 else []
    return Lowering(
        one_step=rng.random() < 0.15,
        decompose=rng.random() < 0.4,
        dim_order=rng.random() < 0.3,
        plan_inputs=rng.random() < 0.4,
        blocklist=blocked,
        force_fp16=rng.random() < 0.04,
    )


def _inputs(maker: Maker) -> None:
    rng = maker.rng
    features = [rng.choice([3, 4, 5, 6, 7, 8, 12]) for _ in range(2)]
    symbols: list[Dim] = list(maker.symbols)
    last = [*symbols, *features]
    width = rng.choice([32, 64]) if rng.random() < 0.1 else features[0]  # groups of quantized weights want 32
    base: list[Dim] = [*symbols[: rng.randint(0, len(symbols))], width]
    if rng.random() < 0.25:
        base = [symbols[0] if symbols else 2, features[0], rng.choice(last), rng.choice(last)]  # an image
    maker.add_input(maker.float_dtype, base)
    for _ in range(rng.randint(0, 3)):
        kind = rng.random()
        dims = list(base) if kind < 0.4 else [rng.choice(last) for _ in range(rng.randint(0 if kind > 0.95 else 1, 3))]
        if kind < 0.65:
            maker.add_input(maker.float_dtype, dims)
        elif kind < 0.85:
            dtype = rng.choice(["int64", "int64", "int32", "int32", "uint8", "int16"])
            maker.add_input(
                dtype, dims, f"{0 if dtype == 'uint8' or rng.random() < 0.6 else -9}:{rng.choice([3, 7, 10])}"
            )
        elif kind < 0.95:
            maker.add_input("bool", dims, "bool")
        else:
            maker.add_input("float64", dims)


def _statements(maker: Maker) -> None:
    num_statements = maker.rng.choice([3, 4, 5, 6, 7, 8, 9, 10, 12])
    weights = [weight for weight, _ in FAMILIES]
    for _ in range(num_statements * 4):
        if len(maker.method.statements) >= num_statements:
            return
        _, propose = maker.rng.choices(FAMILIES, weights)[0]
        propose(maker)


def _outputs(maker: Maker) -> None:
    """What nothing uses, and now and then an output twice, an input, or state itself."""
    rng, method = maker.rng, maker.method
    used = {a for s in method.statements for a in s.args}
    created = [n for s in method.statements for n in s.results]
    unused = [n for n in created if n not in used]
    method.outputs = rng.sample(unused, min(len(unused), rng.randint(2, 5))) or created[-1:]
    if created and rng.random() < 0.15:
        method.outputs.append(rng.choice(created))
    if method.outputs and rng.random() < 0.08:
        method.outputs.append(rng.choice(method.outputs))
    if rng.random() < 0.06:
        method.outputs.append(rng.choice(method.inputs).name)
    rng.shuffle(method.outputs)


def tells_something(program: Program) -> bool:
    """Return whether eager gives finite numbers at every call, most of which noise does not turn into others."""
    try:
        calls = [a for name in program.methods for sequence in answers(program, name) for a in sequence]
    except (RuntimeError, IndexError, ValueError):  # state that grew out of a table, for instance
        return False
    for answer in calls:
        for array, allowed in zip(answer.outputs, answer.tolerances, strict=True):
            size = max(1.0, float(np.abs(array.astype(np.float64)).max(initial=0)))
            if not np.isfinite(array.astype(np.float64)).all() or np.mean(allowed > 0.05 * size) > AMBIGUOUS:
                return False
    return True
