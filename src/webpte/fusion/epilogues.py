"""Fuse elementwise calls into the product, pair of products or convolution that they follow.

See ops/matmul/epilogue.wgsl. A pair is two layers of one input and format, such as a gate and the values that it gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..graph import (
    PLAIN,
    Bool,
    Call,
    Double,
    DType,
    Graph,
    Int,
    Null,
    ProgramLine,
    String,
    TensorSpec,
    Value,
    ValueList,
    parse_program,
)
from ..graph.names import CLAMP, ELEMENTWISE, INT8_CONVOLUTION, INT8_LINEAR, MATMUL
from ..lowering.dim_rules import Dims
from .dims import SymbolicDims
from .elementwise import MAX_STORAGE_BUFFERS, BoundProgram, FusibleCalls, FusionGroup
from .linears import LAYERS, QuantizedLinear, are_pair, fused_call, quantized_linear
from .linears import PATTERN as LINEARS
from .rewriter import Rewriter, roles

MAX_OPERANDS = 3  # besides the results: their strides fill the parameter block
MAX_NUMBERS = 16  # the remaining parameter block

# aten.linear and aten.convolution whose results go through a program, as its x0.
LINEAR, CONVOLUTION = "webpte.linear", "webpte.convolution"
BOUNDS = ("output_min", "output_max")  # of a convolution with limits
PATTERN = {
    "linear": ("aten.linear.default",),
    "quantized": tuple(name for role in LAYERS for name in LINEARS[role]),
    "matrices": ("aten.mm.default",),
    "matrices and more": ("aten.addmm.default",),
    "batches": ("aten.bmm.default",),
    "batches and more": ("aten.baddbmm.default",),
    "convolution": ("aten.convolution.default", "aten::convolution.out", "et_vk.conv_with_clamp.default"),
    "codes": (INT8_CONVOLUTION, INT8_LINEAR),
}
ROLES = roles(PATTERN)
# The axes of the result along which an operand may vary while it repeats along the others.
AXES = {
    "linear": (-1,),
    "quantized": (-1,),
    "matrices": (-2, -1),
    "matrices and more": (-2, -1),
    "batches": (-3, -2, -1),
    "batches and more": (-3, -2, -1),
    "convolution": (),  # the channel axis, which depends on the rank
    "codes": (),  # operands have the layout of the result
}
_FLOATS = {DType.FLOAT32, DType.FLOAT16, DType.WIDE_FLOAT16}


def gate_linears(graph: Graph) -> Graph:
    """Fuse pairs of layers with the elementwise program that reads both, such as a gate: `silu(a(x)) * b(x)`."""
    return _fuse(graph, _pairs)


def add_epilogues(graph: Graph) -> Graph:
    """Fuse elementwise programs into the products that they follow, across views between the two."""
    return _fuse(graph, _alone)


def _fuse(graph: Graph, layers: Layers) -> Graph:
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims, members = SymbolicDims(graph), FusibleCalls(rewriter, DType.INT8)
    for index in range(len(graph.steps)):
        epilogue = _epilogue(rewriter, dims, _program(members, dims, index), index, layers)
        if epilogue is not None:
            epilogue.fuse()
    return rewriter.result()


def _program(members: FusibleCalls, dims: SymbolicDims, index: int) -> BoundProgram | None:
    """Return the elementwise program at a step, if it has one output."""
    rewriter = members.rewriter
    call = rewriter.call(index)
    if call is not None and call.name == ELEMENTWISE and len(call.outs) == 1:
        values = {name: rewriter.values[v] for name, v in rewriter.arguments(call).items()}
        match values["program"], values["tensors"], values["numbers"]:
            case String(text), ValueList(tensors), ValueList(numbers):
                steps, outputs = parse_program(text)
                return BoundProgram(list(steps), list(tensors), list(numbers), list(outputs))
    return FusionGroup(members, dims, index).program() if members.at(index) is not None else None


def _epilogue(
    rewriter: Rewriter, dims: SymbolicDims, program: BoundProgram | None, index: int, layers: Layers
) -> _Epilogue | None:
    """Return the program of step `index` with the latest product among its operands that it can be fused into."""
    if program is None:
        return None
    candidates: list[_Epilogue] = []
    for operand in program.tensors:
        views: list[int] = []
        value_id, user = operand, index
        while (producer := rewriter.producer(value_id)) is not None and _is_only_reader(rewriter, value_id, user):
            user, call = producer
            candidates += [
                _Epilogue(
                    rewriter=rewriter,
                    dims=dims,
                    index=index,
                    program=_with_clamp(rewriter, call, operand, program),
                    operand=operand,
                    product=user,
                    layers=each,
                    views=tuple(views),
                )
                for each in layers(rewriter, user, program, index)
            ]
            source = rewriter.source(call)
            if source is None:
                break
            views.insert(0, user)
            value_id = source
    return next((e for e in sorted(candidates, key=lambda e: -e.product) if e.fits()), None)


def _with_clamp(rewriter: Rewriter, product: Call, operand: int, program: BoundProgram) -> BoundProgram:
    """Return a program that clamps the result of a product first, if the product does."""
    arguments = rewriter.arguments(product)
    bounds = [arguments[name] for name in BOUNDS if name in arguments]
    numbers = [*program.numbers, *(v for v in bounds if not isinstance(rewriter.values[v], Null))]
    if len(numbers) == len(program.numbers):
        return program
    spec = rewriter.values[operand]
    assert isinstance(spec, TensorSpec)
    x = f"x{program.tensors.index(operand)}"
    limits = (f"n{numbers.index(v, len(program.numbers))}" if v in numbers else "-" for v in bounds)
    moved = {x: "v0", **{f"v{i}": f"v{i + 1}" for i in range(len(program.steps))}}
    steps = [step._replace(args=tuple(moved.get(arg, arg) for arg in step.args)) for step in program.steps]
    steps.insert(0, ProgramLine(spec.dtype.short, CLAMP, (x, *limits)))
    return BoundProgram(steps, program.tensors, numbers, [moved.get(out, out) for out in program.outputs])


Combination = tuple[QuantizedLinear, ...]  # a layer, a pair of layers, or () for a product of floats
Layers = Callable[[Rewriter, int, BoundProgram, int], Sequence[Combination]]


def _alone(rewriter: Rewriter, product: int, program: BoundProgram, index: int) -> Sequence[Combination]:
    """Return the product at a step, if it is one."""
    call = rewriter.call(product)
    role = None if call is None else ROLES.get(call.name)
    if call is None or role is None:
        return []
    if role == "quantized":
        layer = quantized_linear(rewriter, product)
        return [] if layer is None else [(layer,)]
    present = rewriter.arguments(call).get("program")  # layers over codes may have a program already
    return [()] if present is None or isinstance(rewriter.values[present], Null) else []


def _pairs(rewriter: Rewriter, product: int, program: BoundProgram, index: int) -> Sequence[Combination]:
    """Return the pairs that the layer at a step forms with others which only the program at `index` reads."""
    layer = quantized_linear(rewriter, product)
    if layer is None or layer.out not in program.tensors:
        return []
    read = (v for v in program.tensors if v != layer.out and _is_only_reader(rewriter, v, index))
    producers = (producer for v in read if (producer := rewriter.producer(v)) is not None)
    others = (quantized_linear(rewriter, step) for step, _ in producers)
    return [(layer, other) for other in others if other is not None and are_pair(rewriter, layer, other)]


def _is_only_reader(rewriter: Rewriter, value_id: int, user: int) -> bool:
    """Return whether a value has no other reader."""
    return rewriter.users[value_id] == [user] and value_id not in rewriter.outputs


@dataclass(frozen=True)
class _Epilogue:
    """A product and the elementwise program that follows it."""

    rewriter: Rewriter
    dims: SymbolicDims
    index: int  # of the program
    program: BoundProgram
    operand: int  # the product's result as the program reads it
    product: int  # the step that makes it
    layers: Combination  # that step, if its weights are quantized, and the other of a pair
    views: tuple[int, ...]  # the steps between product and program

    def _call(self, index: int) -> Call:
        call = self.rewriter.call(index)
        assert call is not None
        return call

    def _spec(self, value_id: int) -> TensorSpec:
        spec = self.rewriter.values[value_id]
        assert isinstance(spec, TensorSpec)
        return spec

    @property
    def result(self) -> int:
        return self._call(self.product).outs[0]

    @property
    def out(self) -> int:
        return self._call(self.index).outs[0]

    @property
    def results(self) -> list[int]:
        """Return the results of products that the program reads."""
        return [self.operand, *(layer.out for layer in self.layers[1:])]

    @property
    def others(self) -> list[int]:
        return [value_id for value_id in self.program.tensors if value_id not in self.results]

    @property
    def like(self) -> int | None:
        """Return an operand with the shape of the result after the views, if there are views."""
        return next((v for v in self.others if self.views and self.dims.same(v, self.operand)), None)

    @property
    def _sources(self) -> set[int]:
        """Return what the kernel binds for the products; offsets of two layers become one tensor."""
        if not self.layers:
            return {*self._call(self.product).args}
        return {*self.layers[0].buffers}.union(*((layer.codes, layer.scales) for layer in self.layers))

    def fits(self) -> bool:
        settled = self.rewriter.is_immutable
        tensors = [v for v in self._sources if isinstance(self.rewriter.values[v], TensorSpec)]
        return (
            self._fits_types()
            and len(tensors) + len(self.others) < MAX_STORAGE_BUFFERS
            and len(self.others) <= MAX_OPERANDS
            and all(isinstance(self.rewriter.values[n], (Int, Double, Bool)) for n in self.program.numbers)
            and self.program.compiled(self.rewriter).numbers <= MAX_NUMBERS
            and self._spec(self.out).dims == self._spec(self.operand).dims
            and all(map(settled, (*tensors, *self.others)))
            and all(map(self._readable, self.others))
            and (not self.views or self.like is not None or self._can_precede_views())
        )

    def _fits_types(self) -> bool:
        """Return whether all is floats or, in layers over codes, the program reads and writes words of codes."""
        dtypes = {self._spec(value_id).dtype for value_id in (self.out, *self.others)}
        if ROLES[self._call(self.product).name] != "codes":
            return self._spec(self.result).dtype in _FLOATS and DType.INT8 not in dtypes
        same_shape = all(self.dims.same(value_id, self.operand) for value_id in self.others)
        return dtypes == {DType.INT8} and same_shape and not self.views

    def _can_precede_views(self) -> bool:
        """Return whether the program can run before the views."""
        producers = [self.rewriter.producers.get(value_id, []) for value_id in self.others]
        same = self._spec(self.out).dtype is self._spec(self.result).dtype
        return same and all(not steps or max(steps) < self.views[0] for steps in producers)

    def _readable(self, value_id: int) -> bool:
        """Return whether an operand has the elements of the result in order, or repeats along axes of the product."""
        pairs = zip(self.dims.of(value_id), self._spec(value_id).dims, strict=True)
        own = _stripped(
            tuple(1 if bound == 1 else size for size, bound in pairs)
        )  # a size of 0 would mean an empty result
        result, operand = self.dims.of(self.result), self.dims.of(self.operand)
        if not own or self.dims.same(value_id, self.operand):
            return True
        if _stripped(result) != _stripped(operand) or len(own) > len(result):
            return False
        own = (1,) * (len(result) - len(own)) + own
        varying = [axis for axis, size in enumerate(own) if size != 1]
        axes = self._axes()
        return all(own[axis] == result[axis] and axis - len(result) in axes for axis in varying)

    def _axes(self) -> tuple[int, ...]:
        call = self._call(self.product)
        weight = self.rewriter.arguments(call).get("weight")
        return AXES[ROLES[call.name]] or (() if weight is None else (1 - len(self._spec(weight).dims),))

    def fuse(self) -> None:
        call, rewriter = self._call(self.product), self.rewriter
        if self.like is not None or not self.views:
            steps = {self.product, *(layer.index for layer in self.layers), *self.views, self.index}
            rewriter.replace(steps, self._with_program(call, self.out), self.index)
            return
        # The product moves to the step of the first view, and each view to the next step.
        calls = [self._call(step) for step in self.views]
        source = rewriter.add(self._spec(self.result))
        rewriter.replace({self.product, self.views[0]}, self._with_program(call, source), self.views[0])
        for view, step in zip(calls, (*self.views[1:], self.index), strict=True):
            outs = (self.out,) if step == self.index else view.outs
            moved = tuple(source if arg == rewriter.source(view) else arg for arg in view.args)
            rewriter.replace({step}, replace(view, args=moved, outs=outs), step)
            (source,) = outs

    def _with_program(self, call: Call, out: int) -> Call:
        """Return the call of the product with the program."""
        program, tensors, numbers = self._renamed().add_to(self.rewriter)
        epilogue = {"program": program, "tensors": tensors, "numbers": numbers, "like": self.like}
        if self.layers:
            return fused_call(self.rewriter, self.layers, (out,), **epilogue)
        own = self.rewriter.arguments(call)
        arguments: dict[str, int | Value | None] = {name: own[name] for name in own if name not in BOUNDS}
        name = {"linear": LINEAR, "convolution": CONVOLUTION, "codes": call.name}.get(ROLES[call.name], MATMUL)
        if name == MATMUL:
            arguments["axes"] = String(PLAIN)
        if ROLES[call.name] in ("matrices", "batches"):
            arguments |= {"mat1": arguments.pop("self"), "beta": Double(1.0), "alpha": Double(1.0)}
        return self.rewriter.make(name, (out,), call.origin, **arguments, **epilogue)

    def _renamed(self) -> BoundProgram:
        """Return the program with the results of the products as its first inputs."""
        order = [*self.results, *self.others]
        names = {f"x{i}": f"x{order.index(value_id)}" for i, value_id in enumerate(self.program.tensors)}
        steps = [
            ProgramLine(step.dtype, step.name, tuple(names.get(arg, arg) for arg in step.args))
            for step in self.program.steps
        ]
        return BoundProgram(steps, self.others, self.program.numbers, self.program.outputs)


def _stripped(dims: Dims) -> Dims:
    """Return dims without leading ones."""
    first = next((axis for axis, size in enumerate(dims) if size != 1), len(dims))
    return dims[first:]
