"""The interface between the planner and a lowering: live tensors and scalars in, dims and dispatches out.

The planner runs the same lowering while planning, with every tensor at its bound, and again whenever something it read
has changed. A lowering always computes from live dims, and cannot distinguish the two.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import GraphError, ShapeError
from ..graph import Call, Constant, DType, TensorSpec, numel
from ..graph.expressions import EXPRESSIONS, AssumedEvaluator, Element, Expression, Number, Term, TermEvaluator, apply
from ..wgsl import Caps, Grid, Kernel, LiveInt, Uniforms, check_flags, grid_for
from .variants import KernelConfig, TuningKey, Variant, choose, of_one_order, usable

Dims = tuple[int, ...]
OFFSET_ALIGNMENT = 256
WHOLE = -1  # a binding's size: the whole buffer


class Binding(NamedTuple):
    """A range of a tensor's storage. The offset is a multiple of 256, WebGPU's default alignment."""

    tensor: int
    offset: int
    nbytes: int


# How a dtype is stored on the device. A bool takes a word: sub-word stores would need one invocation per word, and
# masks are small. 8-bit integers stay packed, four to a word.
_WGSL_TYPES = {
    DType.FLOAT32: "f32",
    DType.INT32: "i32",
    DType.BOOL: "u32",
    DType.FLOAT16: "f16",
    DType.WIDE_FLOAT16: "f16w",  # wgsl.kernel replaces it
    DType.INT8: "u32",
    DType.UINT8: "u32",
}
FLOATING = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
_STORED_BYTES = {DType.BOOL: 4, DType.WIDE_FLOAT16: 4}


def stored_bytes(dtype: DType, dims: Dims) -> int:
    """Return the bytes that a tensor takes on the device, without padding."""
    return numel(dims) * _STORED_BYTES.get(dtype, dtype.itemsize)


class Tensor:
    """A tensor with a fixed dtype, a fixed upper bound of its dims, and live dims."""

    __slots__ = ("_dims", "bound", "dtype", "id", "spec")

    def __init__(self, value_id: int, spec: TensorSpec) -> None:
        self.id = value_id
        self.spec = spec
        self.dtype = spec.dtype
        self.bound = spec.dims
        self._dims: Dims | None = None

    @property
    def dims(self) -> Dims:
        if self._dims is None:
            raise GraphError(f"value {self.id} {self.spec} is read before it is written", code="read_before_write")
        return self._dims

    @dims.setter
    def dims(self, dims: Dims) -> None:
        if len(dims) != len(self.bound) or any(not 0 <= d <= b for d, b in zip(dims, self.bound, strict=True)):
            raise ShapeError(
                argument=f"value {self.id}",
                expected=f"a shape within the bound {list(self.bound)}",
                got=list(dims),
                code="exceeds_bound",
            )
        self._dims = dims

    @property
    def is_written(self) -> bool:
        """Return whether the live dims are known."""
        return self._dims is not None

    def forget_dims(self) -> None:
        """Return to the state before the tensor was written."""
        self._dims = None

    @property
    def rank(self) -> int:
        return len(self.bound)

    @property
    def numel(self) -> int:
        return numel(self.dims)

    @property
    def nbytes(self) -> int:
        return stored_bytes(self.dtype, self.dims)

    @property
    def binding(self) -> Binding:
        """Return the range that a dispatch binds: the whole buffer of the tensor."""
        return Binding(self.id, 0, WHOLE)

    @property
    def wgsl(self) -> str:
        """Return the WGSL element type of the tensor's buffer."""
        try:
            return _WGSL_TYPES[self.dtype]
        except KeyError:
            raise GraphError(f"value {self.id}: no kernel supports dtype {self.dtype.short}", code="dtype") from None

    def __repr__(self) -> str:
        return f"%{self.id} {self.dtype.short}{list(self._dims if self._dims is not None else self.bound)}"


def load_type(tensor: Tensor, width: int) -> str:
    """Return the name that loads.wgsl has for a load of `width` neighbors: 1, 2 or 4."""
    return tensor.wgsl if width == 1 else f"{tensor.wgsl}x{width}"


class Part(Tensor):
    """A range of a tensor's bytes, for a dispatch that does not bind all of it."""

    __slots__ = ("_binding",)

    def __init__(self, tensor: Tensor, offset: int, nbytes: int) -> None:
        super().__init__(tensor.id, tensor.spec)
        self._binding = Binding(tensor.id, offset, nbytes)

    @property
    def binding(self) -> Binding:
        return self._binding


class LiveScalar:
    """A scalar argument or result: a number, or an expression that every call evaluates."""

    __slots__ = ("_method", "_term", "id", "literal")

    def __init__(self, method: MethodContext, value_id: int, number: Number | None = None) -> None:
        self._method = method
        self.id = value_id
        self._term: Term | None = number
        self.literal = number is not None  # a constant of the file: the same for all shapes and calls

    @property
    def term(self) -> Term:
        if self._term is None:
            raise GraphError(f"scalar {self.id} is read before it is written", code="read_before_write")
        return self._term

    def set(self, term: Term) -> None:
        self._term = term

    @property
    def value(self) -> Any:
        """Return the number now. Each different number gets its own schedule: see Context.specialize."""
        return self._method.live.specialize(self.term)

    @property
    def dynamic(self) -> LiveInt:
        """Return the scalar as a uniform that the kernel reads. The schedule does not depend on its value."""
        return self._method.live.dynamic(self.term)

    @property
    def dynamic_bits(self) -> LiveInt:
        """Return a float as a uniform: the kernel bit-casts the integer it reads."""
        return self._method.live.dynamic(apply("float_bits", self.term))


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One compute dispatch, device independent. `bindings` are reads first, then writes."""

    kernel: Kernel
    bindings: tuple[Binding, ...]
    params: bytes
    grid: Grid


_FIELD = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition `low <= term < high`, checked on the host before every run. None means no bound."""

    term: Term
    low: Number | None
    high: Number | None
    where: str  # the call
    message: str  # {0} is the number outside the range, {1} and on are the values of `format_args`
    format_args: tuple[Term, ...] = ()
    overflow: bool = False  # the condition is that a number fits the device's integers

    def refusal(self, numbers: TermEvaluator) -> str | None:
        """Return the error message for a call that violates the condition, else None."""
        number = numbers(self.term)
        if (self.low is None or self.low <= number) and (self.high is None or number < self.high):
            return None
        named = [number, *map(numbers, self.format_args)]
        return f"{self.where}: {_FIELD.sub(lambda field: str(named[int(field[1])]), self.message)}"


class _NoParams(Uniforms):
    """Only `threads`."""


Arrays = Mapping[str, Tensor | None]  # the tensors of a template's arrays, by name; None binds nothing
NOTHING: Arrays = MappingProxyType({})


class LiveNumbers:
    """The terms of a schedule: collected while its calls are lowered, at the numbers of one call of the method."""

    def __init__(self, numbers: TermEvaluator) -> None:
        self.numbers = numbers
        self.specializations: dict[Expression, Number] = {}  # the numbers that the schedule is specialized on
        self.slots: dict[Expression, int] = {}  # its live integers

    def specialize(self, term: Term) -> Any:
        """Return the number that a term is now. Calls with another number get another schedule."""
        if not isinstance(term, EXPRESSIONS):
            return term
        number = self.specializations[term] = self.numbers(term)
        return number

    def dynamic(self, term: Term) -> LiveInt:
        """Return an integer that kernels read from a uniform. Kernels and bindings do not depend on its value."""
        if not isinstance(term, EXPRESSIONS):
            return LiveInt(int(term), -1)
        return LiveInt(0, self.slots.setdefault(term, len(self.slots)))


class MethodContext:
    """What the lowerings of all calls of a method share: the device, storage and kernels."""

    def __init__(
        self,
        caps: Caps,
        values: int,
        tuning: Mapping[str, str] | None = None,
        *,
        pinned: frozenset[int] = frozenset(),
        sequences: bool = False,
    ) -> None:
        self.caps = caps
        self.tuning = tuning or {}  # tuning key -> variant, as measured on this device
        self.pinned = pinned  # values that may not share storage with another
        self.sequences = sequences  # rows are tokens of sequences, whose bits may not depend on the rows beside them
        self.aliases: dict[int, int] = {}  # out -> source
        self.materialized: dict[int, Constant] = {}
        self.scratch_tensors: dict[tuple[int, int], Tensor] = {}  # (call, number) -> the largest request
        self.live = LiveNumbers(AssumedEvaluator({}, {}))  # of the schedule that is being lowered
        self.sealed = False  # planning has ended: scratch cannot grow
        self._oversized: dict[int, tuple[Binding, ...]] = {}  # tensors larger than a binding -> their parts
        self._kernels: dict[tuple[object, ...], Kernel] = {}
        self._values = values  # of the graph: scratch tensors have the ids after them

    def measure(self, tensor: Tensor) -> None:
        """Record the parts of a tensor that exceeds the device's binding limit at its bound."""
        limit, nbytes = self.caps.limit("max-storage-buffer-binding-size"), stored_bytes(tensor.dtype, tensor.bound)
        if nbytes <= limit:
            return
        nbytes, step = -(-nbytes // 4) * 4, self._part_bytes
        offsets = range(0, nbytes, step)
        self._oversized[tensor.id] = tuple(Binding(tensor.id, at, min(step, nbytes - at)) for at in offsets)

    @property
    def _part_bytes(self) -> int:
        """Return the size of a part: the binding limit, rounded down so that the next part is aligned."""
        return max(self.caps.limit("max-storage-buffer-binding-size") // OFFSET_ALIGNMENT, 1) * OFFSET_ALIGNMENT

    def in_parts(self, bindings: tuple[Binding, ...]) -> tuple[tuple[Binding, ...], tuple[int, ...]]:
        """Return the bindings with oversized tensors in parts, and the number of parts of each; () if all have one."""
        if not self._oversized:
            return bindings, ()
        several = [self._oversized.get(b.tensor, (b,)) if b.nbytes == WHOLE else (b,) for b in bindings]
        if all(len(parts) == 1 for parts in several):
            return bindings, ()
        return tuple(part for parts in several for part in parts), tuple(map(len, several))

    def scratch_id(self, key: tuple[int, int], spec: TensorSpec) -> int:
        """Return the id of a call's scratch tensor, which becomes as large as the request while planning."""
        largest = self.scratch_tensors.get(key)
        if largest is None:
            largest = self.scratch_tensors[key] = Tensor(self._values + len(self.scratch_tensors), spec)
        elif stored_bytes(spec.dtype, spec.dims) > stored_bytes(largest.dtype, largest.bound):
            if self.sealed:
                raise GraphError(
                    f"scratch: expected at most {list(largest.bound)}, the largest request while "
                    f"planning, got {list(spec.dims)}"
                )
            largest = self.scratch_tensors[key] = Tensor(largest.id, spec)
        self.measure(largest)
        return largest.id

    def kernel(
        self,
        home: str,
        template: str,
        flags: dict[str, object],
        params: type[Uniforms],
        size: int,
        arrays: tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]],
    ) -> Kernel:
        """Return the kernel. `arrays` are the names of arrays read and written, and the parts of each or ()."""
        key = (home, template, tuple(flags.items()), params, size, arrays)
        kernel = self._kernels.get(key)
        if kernel is None:
            check_flags(home, template, flags)
            read, written, parts = arrays
            reads, writes = len(read), len(written)
            if both := {*read} & {*written}:
                raise GraphError(
                    f"{template}: expected different names in `reads` and `writes`, got {', '.join(sorted(both))} in "
                    "both. A kernel may read what is in `writes`.",
                    code="array_names",
                )
            if parts:
                reads, writes = sum(parts[:reads]), sum(parts[reads:])
            kernel = Kernel(
                home=home,
                template=template,
                flags=tuple(sorted(flags.items())),
                params=params.wgsl,
                workgroup=size,
                reads=reads,
                writes=writes,
                arrays=(*((name, "read") for name in read), *((name, "read_write") for name in written)),
                parts=parts,
                part_bytes=self._part_bytes if parts else 0,
            )
            self._kernels[key] = kernel
        return kernel


class Context:
    """The lowering of one call: what it reads of the device, and the dispatches and guards that it adds."""

    def __init__(self, method: MethodContext, position: int, home: str, call: Call) -> None:
        self.caps = method.caps
        self.dispatches: list[Dispatch] = []
        self.guards: list[Guard] = []
        self.touched: set[Binding] = set()  # ranges that the call binds, also with zero threads
        self.tuning_keys: list[TuningKey] = []
        self.scratch_dims: dict[int, Dims] = {}
        self._method = method
        self._position = position
        self._home = home  # where the op finds templates
        self._call = call

    def dispatch(
        self,
        template: str,
        *,
        reads: Arrays = NOTHING,
        writes: Arrays,
        params: Uniforms | None = None,
        threads: int,
        workgroup: int = 64,
        **flags: object,
    ) -> None:
        """Dispatch `template` over `threads` invocations. Flags are compiled in; `params` are uniforms.

        `reads` and `writes` bind tensors to the template's arrays, in order.
        """
        read = {name: tensor.binding for name, tensor in reads.items() if tensor is not None}
        written = {name: tensor.binding for name, tensor in writes.items() if tensor is not None}
        bindings, parts = self._method.in_parts((*read.values(), *written.values()))
        self.touched.update(bindings)
        if threads == 0:
            return
        params = params if params is not None else _NoParams()
        size = self.caps.workgroup(workgroup)
        arrays = (tuple(read), tuple(written), parts)
        kernel = self._method.kernel(self._home, template, flags, type(params), size, arrays)
        grid = grid_for(threads, size, self.caps.workgroups_per_dimension)
        self.dispatches.append(Dispatch(kernel, bindings, params.pack(threads), grid))

    def variant(
        self,
        family: str,
        shape: tuple[object, ...],
        *,
        cpu: Sequence[Variant[KernelConfig]],
        gpu: Sequence[Variant[KernelConfig]],
        work: object = None,
    ) -> Variant[KernelConfig]:
        """Return the kernel to run: the fastest measured for this shape, else the first for the kind of device.

        The choice may depend on `shape`. `work` is passed to the requirements of the variants. A measurement may
        choose a variant of the other kind of device, but for sequences none that adds up a row in another order.
        """
        preferred = usable((*cpu, *gpu) if self.caps.kind == "cpu" else (*gpu, *cpu), self.caps, work)
        method = self._method
        variants = of_one_order(preferred) if method.sequences else preferred
        key, chosen = choose(family, shape, variants, method.tuning)
        self.tuning_keys.append(key)
        return chosen

    def alias(self, out: Tensor, source: Tensor) -> bool:
        """Make `out` a view of all of `source`. Return False if either is written elsewhere: then copy."""
        if out.id in self._method.pinned or source.id in self._method.pinned or out.dtype is not source.dtype:
            return False
        self._method.aliases[out.id] = source.id
        return True

    def materialize(self, out: Tensor, constant: Constant) -> None:
        """Make `out` a constant that is filled once, from the file."""
        self._method.materialized[out.id] = constant

    def scratch(self, dtype: DType, dims: Dims) -> Tensor:
        """Return a buffer for this call alone. Its size is the largest request while planning."""
        spec = TensorSpec(dtype, dims, dtype)
        tensor = Tensor(self._method.scratch_id((self._position, len(self.scratch_dims)), spec), spec)
        tensor.dims = self.scratch_dims[tensor.id] = dims
        return tensor

    def parts(self, tensor: Tensor, row_bytes: int, rows: int) -> Iterator[tuple[int, int, Tensor]]:
        """Yield a tensor of `rows` rows as the fewest parts that the device can bind: (first row, rows, part)."""
        limit = self.caps.limit("max-storage-buffer-binding-size")
        if row_bytes * rows <= limit:
            yield 0, rows, tensor
            return
        aligned = OFFSET_ALIGNMENT // math.gcd(OFFSET_ALIGNMENT, row_bytes)  # rows between aligned offsets
        step = limit // row_bytes // aligned * aligned
        if step == 0:
            raise ShapeError(
                f"value {tensor.id}: {aligned} rows of {row_bytes} bytes exceed the binding limit of {limit} bytes",
                code="binding_limit",
            )
        for first in range(0, rows, step):
            count = min(step, rows - first)
            yield first, count, Part(tensor, first * row_bytes, -(-count * row_bytes // 4) * 4)

    def reserve(self, tensor: Tensor) -> None:
        """Allocate a tensor although no dispatch of this schedule binds it; one of another schedule does."""
        self.touched.add(tensor.binding)

    def specialize(self, term: Term) -> Any:
        """Return the number that a term is now. Calls with another number get another schedule."""
        return self._method.live.specialize(term)

    def dynamic(self, term: Term) -> LiveInt:
        """Return an integer that kernels read from a uniform. Kernels and bindings do not depend on its value."""
        return self._method.live.dynamic(term)

    def guard(
        self,
        term: Term,
        low: Number | None,
        high: Number | None,
        message: str,
        *format_args: Term,
        overflow: bool = False,
    ) -> None:
        """Reject calls without `low <= term < high`. In the message, {0} is the term, {1} and on are `format_args`."""
        where = f"{self._call.name} ({self._call.origin})"
        self.guards.append(
            Guard(
                term=term, low=low, high=high, where=where, message=message, format_args=format_args, overflow=overflow
            )
        )

    def element(self, tensor: Tensor, index: Dims) -> Element:
        """Return an element of a tensor that the op has declared in `host_args`."""
        return Element(tensor.id, index, tensor.spec.host_dtype not in FLOATING)


def folder_of(function: Callable[..., Any]) -> str:
    """Return the folder of an op's templates: that of its Python file."""
    return os.path.dirname(os.path.abspath(function.__code__.co_filename))
