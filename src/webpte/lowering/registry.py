"""The operator registry: one decorated function per op, found by importing the modules of the package `ops`.

    @op("aten.relu.default")
    def relu(cx: Context, self: Tensor, *, out: Tensor) -> None: ...

    @relu.reference
    def _(self): return np.maximum(self, 0)

Parameters are the op's schema arguments in order, decoded by their annotations. `out` is a Tensor, a LiveScalar, or a
tuple or list of Tensors. An argument that a release of ExecuTorch added to a schema has a default, for files that do
not pass it. Adding an op needs no other edit.

Arguments that several schemas share, in the same order, can be one parameter:

    @dataclass(frozen=True)
    class QuantParams:
        scale: float
        zero_point: int

    @op("toy.rescale.default")
    def rescale(cx: Context, x: Tensor, quant: Annotated[QuantParams, "input_"], *, out: Tensor) -> None: ...

A parameter annotated with a dataclass takes one argument for each field: this schema has `x`,
`input_scale` and `input_zero_point`. `Op.parameters` has these flat names; the lowering and the reference read
`quant.scale`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from ..errors import GraphError, UnsupportedError
from ..graph import Call, DType, Graph, TensorSpec
from ..wgsl import home_of
from .context import folder_of
from .formulas import Describe
from .traits import OpTraits

Function = Callable[..., Any]
Predicate = Callable[[Call, Graph], bool]
FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.WIDE_FLOAT16})
NUMBERS = FLOATS | {DType.INT32}
WORDS = NUMBERS | {DType.BOOL}  # dtypes that a kernel can copy without interpreting them
BYTES = frozenset({DType.INT8, DType.UINT8})  # stored four to a word
MOVABLE = WORDS | BYTES  # for ops that only alias and gather


class TensorOption:
    """Annotation of dtype, layout, device and pin_memory: null inside delegates, absent in out-variants."""


class Unused:
    """Annotation of an argument that does not affect the result."""


@dataclasses.dataclass(frozen=True)
class TensorOptions:
    """The four options that every op that creates a tensor takes."""

    dtype: TensorOption
    layout: TensorOption
    device: TensorOption
    pin_memory: TensorOption


Parameters = tuple[tuple[str, Any], ...]  # names and annotations


class ArgumentGroup(NamedTuple):
    """A parameter of a lowering: arguments `first` to `last` of the schema, and the class that joins them."""

    first: int
    last: int
    make: type | None


def _flatten(hints: Mapping[str, Any]) -> tuple[Parameters, tuple[ArgumentGroup, ...]]:
    """Return the schema's arguments, and the group of them that each parameter of a lowering takes."""
    parameters: list[tuple[str, Any]] = []
    groups = []
    for name, hint in hints.items():
        make, members = _members(name, hint)
        groups.append(ArgumentGroup(len(parameters), len(parameters) + len(members), make))
        parameters += members
    return tuple(parameters), tuple(groups)


def _members(name: str, annotation: Any) -> tuple[type | None, list[tuple[str, Any]]]:
    prefix = ""
    if get_origin(annotation) is Annotated:
        annotation, prefix = get_args(annotation)
    if not dataclasses.is_dataclass(annotation):
        return None, [(name, annotation)]
    assert isinstance(annotation, type)
    hints = _field_types(annotation)
    return annotation, [(prefix + field.name, hints[field.name]) for field in dataclasses.fields(annotation)]


@functools.cache
def _field_types(group: type) -> dict[str, Any]:
    return get_type_hints(group)


class Op:
    """A registered operator."""

    def __init__(
        self,
        fn: Function,
        names: tuple[str, ...],
        kernels: tuple[str, ...],
        dtypes: frozenset[DType],
        host_args: tuple[str, ...],
        unsupported_if: Predicate | None,
        traits: OpTraits,
    ) -> None:
        self.names = names
        self.kernels = kernels
        self.dtypes = dtypes
        self.lower = self._registered = fn
        self.home = home_of(folder_of(fn))
        self.compute: Function | None = None  # the NumPy reference, of the schema's arguments
        signature = inspect.signature(fn).parameters.values()
        self._taken = tuple(parameter.name for parameter in signature if parameter.name not in ("cx", "out"))
        values = {p.name: p.default for p in signature if p.default is not inspect.Parameter.empty}
        self.defaults = {name: value for p in values for name, value in _defaults_of(p, values[p]).items()}
        if missing := [name for name in (*self._taken, "out") if name not in fn.__annotations__]:
            raise GraphError(
                f"{names[0]}: parameters without a type annotation: {', '.join(missing)}",
                code="unannotated_argument",
                hint="Annotations say how each value is passed.",
            )
        self.host_args = host_args
        self.unsupported_if = unsupported_if
        self.traits = traits

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        """Resolve annotations on first use: it is the slowest part of registering, and a program uses few ops."""
        return get_type_hints(self._registered, include_extras=True)

    @functools.cached_property
    def _schema(self) -> tuple[Parameters, tuple[ArgumentGroup, ...]]:
        return _flatten({name: self._hints[name] for name in self._taken})

    @property
    def parameters(self) -> Parameters:
        """Return the schema's arguments by name and annotation."""
        return self._schema[0]

    @property
    def out_type(self) -> Any:
        return self._hints["out"]

    def reference(self, fn: Function) -> Function:
        """Register the NumPy reference: the same arguments without `cx` and `out`; it returns the output or a tuple."""
        self.compute = lambda *arguments: fn(*self.gathered(arguments))
        return fn

    def gathered(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return the schema's arguments as the lowering and the reference take them: a group is one value."""
        if absent := self.parameters[len(arguments) :]:
            arguments = (*arguments, *(self.defaults[name] for name, _ in absent))
        groups = self._schema[1]
        if all(group.make is None for group in groups):
            return arguments
        return [
            arguments[group.first] if group.make is None else group.make(*arguments[group.first : group.last])
            for group in groups
        ]

    def bound_parameters(self, call: Call) -> tuple[tuple[str, Any], ...]:
        """Return the parameters that `call` passes, in order.

        Out-variants omit the tensor options, and files of older releases the last arguments that have defaults.
        """
        parameters = self.parameters
        if call.kernel:
            parameters = tuple(p for p in parameters if p[1] is not TensorOption)
        while len(parameters) > len(call.args) and parameters[-1][0] in self.defaults:
            parameters = parameters[:-1]
        if len(parameters) != len(call.args):
            names = ", ".join(name for name, _ in parameters)
            raise GraphError(
                f"{call.name} ({call.origin}): expected {len(parameters)} arguments ({names}), got {len(call.args)}",
                code="wrong_arity",
            )
        return parameters

    def arguments(self, call: Call) -> dict[str, int]:
        """Return the values that `call` passes, by parameter name."""
        return {name: value for (name, _), value in zip(self.bound_parameters(call), call.args, strict=True)}

    def shared_arguments(self, call: Call) -> dict[str, int]:
        """Return the same for a call of any overload: overloads differ in their last arguments."""
        names = [name for name, annotation in self.parameters if not call.kernel or annotation is not TensorOption]
        return dict(zip(names, call.args, strict=False))

    def _positions(self, names: tuple[str, ...], call: Call) -> tuple[int, ...]:
        if not names:
            return ()
        return tuple(i for i, (name, _) in enumerate(self.bound_parameters(call)) if name in names)

    def mutated(self, call: Call) -> tuple[int, ...]:
        """Return the positions of arguments that the op writes in place."""
        return self._positions(self.traits.mutates, call)

    def host_read(self, call: Call) -> tuple[int, ...]:
        """Return the positions of tensor arguments whose data the lowering reads on the host."""
        return self._positions(self.host_args, call)


def _defaults_of(name: str, default: Any) -> dict[str, Any]:
    """Return the default of a parameter for each argument of the schema that it takes."""
    return vars(default) if dataclasses.is_dataclass(default) else {name: default}


NO_TRAITS = OpTraits()
CUSTOM_OPS = "webpte.ops"  # the group of entry points of packages with ops
_OPS: dict[str, Op] = {}
_KERNELS: dict[str, Op] = {}


def op(
    *names: str,
    kernels: tuple[str, ...] = (),
    dtypes: frozenset[DType] = WORDS,
    host_args: tuple[str, ...] = (),
    unsupported_if: Predicate | None = None,
    traits: OpTraits = NO_TRAITS,
) -> Callable[[Function], Op]:
    """Return a decorator that registers a lowering under its edge names.

    `kernels` adds names of out-variants that the naming rule does not derive. `dtypes` are the dtypes of tensors that
    the op reads and writes. `host_args` names arguments whose data the lowering reads on the host. If `unsupported_if`
    returns true for a call, the call runs on the CPU. Graph passes, the planner and profiles read `traits`.
    """

    def register(fn: Function) -> Op:
        derived = tuple(filter(None, map(_out_variant, names)))
        registered = Op(
            fn=fn,
            names=names,
            kernels=kernels + derived,
            dtypes=dtypes,
            host_args=host_args,
            unsupported_if=unsupported_if,
            traits=traits,
        )
        _check(fn.__name__, registered)
        for name in names:
            _OPS[name] = registered
        for name in registered.kernels:
            _KERNELS[name] = registered
        _families.cache_clear()
        return registered

    return register


def _check(name: str, registered: Op) -> None:
    """Raise a GraphError if traits contradict the signature or each other."""
    traits = registered.traits
    if named := (*registered.host_args, *traits.argument_names):
        parameters = [parameter for parameter, _ in registered.parameters]
        for argument in named:
            if argument not in parameters:
                raise GraphError(
                    f"{name}: expected traits to name one of {', '.join(parameters)}, got {argument!r}",
                    code="unknown_argument",
                )
    if traits.mutates and traits.replaceable:
        raise GraphError(
            f"{name}: writes {', '.join(traits.mutates)} in place, so it cannot be a view, a fill or a formula: "
            "passes remove those calls",
            code="in_place",
        )


def unregister(registered: Op) -> None:
    """Remove an op from the registry: for experiments in a notebook or a test."""
    for table in (_OPS, _KERNELS):
        for name in [name for name, registered_op in table.items() if registered_op is registered]:
            del table[name]
    _families.cache_clear()


def _out_variant(name: str) -> str | None:
    """Return the name outside delegates: `aten::cat.out` of `aten.cat.default`, `aten::x.Y_out` of `aten.x.Y`."""
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.rpartition(".")
    if namespace not in ("aten", "dim_order_ops") or not base:
        return None
    return f"{namespace}::{base}.{'out' if overload == 'default' else overload + '_out'}"


@functools.cache
def _discover() -> None:
    """Import every module of every family, which registers its ops. There is no list of ops.

    Entry points of installed packages in the group `webpte.ops` are modules with further ops.
    """
    name = f"{__package__.rpartition('.')[0]}.ops"
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        importlib.import_module(module.name)
    from importlib.metadata import entry_points  # importing webpte needs none

    for entry in entry_points(group=CUSTOM_OPS):
        try:
            entry.load()
        except Exception as error:
            raise UnsupportedError(
                f"entry point {entry.name} of {CUSTOM_OPS}: {entry.value} cannot be imported: "
                f"{type(error).__name__}: {error}",
                code="entry_point",
            ) from error


def find(call: Call) -> Op | None:
    """Return the op of a call, or None."""
    _discover()
    return (_KERNELS if call.kernel else _OPS).get(call.name)


def formula_of(name: str) -> Describe:
    """Return the formula of the elementwise op with an edge name."""
    _discover()
    formula = _OPS[name].traits.elementwise
    assert callable(formula)
    return formula


def elementwise_op(call: Call) -> tuple[str, Op] | None:
    """Return the name and the op whose formula a call computes; None if the call is not elementwise."""
    registered_op = find(call)
    formula = None if registered_op is None else registered_op.traits.elementwise
    if registered_op is None or formula is None:
        return None
    return (formula, _OPS[formula]) if isinstance(formula, str) else (call.name, registered_op)


def overload(call: Call) -> Op | None:
    """Return the op of a call, or else an op of another overload."""
    registered_op = find(call)
    family = _family(call.name) if registered_op is None else None
    return registered_op if family is None else _families().get(family)


@functools.cache
def _families() -> dict[tuple[str, str], Op]:
    _discover()
    named = {_family(name): registered_op for table in (_KERNELS, _OPS) for name, registered_op in table.items()}
    return {family: registered_op for family, registered_op in named.items() if family is not None}


def _family(name: str) -> tuple[str, str] | None:
    """Return (`aten`, `add`) for `aten.add.Tensor` and for `aten::add.out`; None for a name without overload."""
    parts = name.replace("::", ".").split(".")
    return (parts[0], parts[1]) if len(parts) > 2 else None


def refused_dtypes(op: Op, call: Call, graph: Graph) -> list[str]:
    """Return the operands of a call whose dtype the op's kernels do not support."""
    host = {call.args[p] for p in op.host_read(call)}
    operands = [v for v in (*graph.flatten(call.args), *call.outs) if v not in host]
    tensors = {v: spec for v in operands if isinstance(spec := graph.values[v], TensorSpec)}
    return [f"value {v} {spec}" for v, spec in tensors.items() if spec.dtype not in op.dtypes]


def gpu_op(call: Call, graph: Graph) -> Op | None:
    """Return the op that runs a call on the device; None if there is none or it does not support the operands."""
    if call.on_host:
        return None
    registered_op = find(call)
    if registered_op is not None and (
        refused_dtypes(registered_op, call, graph)
        or (registered_op.unsupported_if and registered_op.unsupported_if(call, graph))
    ):
        return None
    return registered_op


def registered() -> dict[str, Op]:
    """Return every op by its edge name."""
    _discover()
    return dict(_OPS)


def mutated_positions(call: Call) -> tuple[int, ...]:
    """Return the positions of arguments that a call writes in place; none for an unknown op."""
    registered_op = find(call)
    return registered_op.mutated(call) if registered_op else ()


def mutated_values(call: Call, graph: Graph) -> tuple[int, ...]:
    """Return the values that a call writes in place; if one is a list, all its members."""
    positions = mutated_positions(call)  # none, mostly
    return graph.flatten([call.args[position] for position in positions]) if positions else ()
