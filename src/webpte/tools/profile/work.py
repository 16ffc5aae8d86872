"""What a call has to do, from its live shapes: bytes its dispatches touch, and the arithmetic of products.

Bytes are those of all bindings at their live size, once per dispatch. Where a kernel is known to touch less of a tensor
than is bound (a row of a table, the filled part of a cache) only that counts. It is the least a kernel could move, so
the rate it gives is what was achieved, caches aside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...graph import LIVE_SCALARS, Call, Graph, IntList, TensorSpec, numel
from ...graph.expressions import Given, Numbers, Term
from ...lowering import WHOLE, Dispatch, find, stored_bytes
from ...plan import Live, LoweredCall, Plan, Schedule

Dims = tuple[int, ...]


class Work:
    """What a call of a method had to do, from the schedules it used and from what was live when it had run."""

    def __init__(self, plan: Plan, schedules: Sequence[Schedule], live: Live) -> None:
        self._graph: Graph = plan.graph
        self._dims = {v: dims for s in schedules for v, dims in s.dims.items()}
        self._dtypes = {value_id: scratch.spec.dtype for value_id, scratch in plan.scratch.items()}
        self._terms: dict[int, Term] = {v: term for s in schedules for v, term in s.scalars.items()}
        self._numbers = Numbers(live.arrays, live.scalars)

    def bytes(self, lowered: LoweredCall, dispatch: Dispatch) -> int:
        """What a dispatch reads and writes."""
        total = 0
        for position, binding in enumerate(dispatch.bindings):
            whole = self._nbytes(binding.tensor) if binding.nbytes == WHOLE else binding.nbytes
            total += int(whole * self._share(lowered, binding.tensor, position >= dispatch.kernel.reads))
        return total

    def flops(self, call: Call) -> int | None:
        """Multiplications and additions of a product; None for other calls."""
        rule = next((rule for part, rule in _FLOPS.items() if part in call.name), None)
        return None if rule is None else rule(self, call)

    def shapes(self, call: Call) -> str:
        """The live dims of a call's tensors, `[1, 7, 64] × [64, 64] → [1, 7, 64]`."""
        read, made = (
            [str(list(self.dims(v))) for v in ids if isinstance(self._graph.values[v], TensorSpec)]
            for ids in (self._graph.flatten(call.args), call.outs)
        )
        return f"{' × '.join(read)} → {', '.join(made)}"

    def dims(self, value_id: int) -> Dims:
        dims = self._dims.get(value_id)
        return self._graph.tensor(value_id).dims if dims is None else dims  # what the file holds is always whole

    def _nbytes(self, value_id: int) -> int:
        dtype = self._dtypes.get(value_id)
        return stored_bytes(self._graph.tensor(value_id).dtype if dtype is None else dtype, self.dims(value_id))

    def number(self, value_id: int) -> Any:
        """A scalar argument's value in that call."""
        value = self._graph.values[value_id]
        if not isinstance(value, LIVE_SCALARS):
            return getattr(value, "value", None)
        return self._numbers(self._terms.get(value_id, Given(value_id, True)))

    def argument(self, call: Call, name: str) -> int | None:
        """The value passed for a parameter, by the name the op's lowering gives it."""
        op = find(call)
        names = [parameter for parameter, _ in op.bound_parameters(call)] if op is not None else []
        return call.args[names.index(name)] if name in names else None

    def members(self, value_id: int) -> tuple[int, ...]:
        """The values of a list; a single value is a list of one."""
        return self._graph.flatten((value_id,))

    def numbers(self, value_id: int) -> list[int]:
        """A list of integers."""
        value = self._graph.values[value_id]
        return list(value.values) if isinstance(value, IntList) else [self.number(v) for v in getattr(value, "ids", ())]

    def _share(self, lowered: LoweredCall, tensor: int, written: bool) -> float:
        """How much of a bound tensor a call touches."""
        call = self._graph.call(lowered.step)
        if tensor in call.outs or tensor not in call.args:
            return 1.0
        dims = self.dims(tensor)
        if "embedding" in call.name and len(dims) > 1:
            return min(1.0, numel(self.dims(call.outs[0])[:-1]) / max(1, dims[0]))
        start = self.argument(call, "start_pos")
        seq = self.dims(call.args[0])[1] if start is not None else 0
        if start is not None and len(dims) == 4 and dims[1] > seq:  # a cache (B, C, H, D)
            return min(1.0, (seq if written else self.number(start) + seq) / dims[1])
        if call.name.rpartition(".")[0].endswith(_TAKES):
            return min(1.0, numel(self.dims(call.outs[0])) / max(1, numel(dims)))
        return 1.0


Rule = Callable[[Work, Call], int | None]

# Ops whose output is a part of their input.
_TAKES = ("slice_copy", "select_copy", "index_select", "aten.gather", "aten::slice_copy", "aten::select_copy")


def _product(position: int) -> Rule:
    """Rows times columns: every element of the output is a sum over the last dim of an argument."""
    return lambda work, call: 2 * numel(work.dims(call.outs[0])) * work.dims(call.args[position])[-1]


def _joined_product(work: Work, call: Call) -> int | None:
    """Every row of the input times every 4-bit code of the weights that were joined; a byte holds two."""
    x = work.dims(call.args[0])
    codes = sum(2 * numel(work.dims(weight)) for weight in work.members(call.args[3]))
    return 2 * numel(x[:-1]) * codes


def _convolution(work: Work, call: Call) -> int | None:
    weight = work.dims(call.args[1])  # (outputs, inputs per group, kernel...), transposed (inputs, ...)
    transposed = work.argument(call, "transposed")
    side = call.args[0] if transposed is not None and work.number(transposed) else call.outs[0]
    return 2 * numel(work.dims(side)) * numel(weight) // weight[0]


def _quantised_convolution(work: Work, call: Call) -> int | None:
    """Its weights are packed: their dims do not tell."""
    kernel, groups = (work.argument(call, name) for name in ("kernel_size", "groups"))
    if kernel is None or groups is None:
        return None
    inputs, outputs = work.dims(call.args[0]), work.dims(call.outs[0])  # (N, C, H, W)
    across = outputs[-3] if "transposed" in call.name else inputs[-3]
    side = inputs if "transposed" in call.name else outputs
    return 2 * numel(side) * numel(tuple(work.numbers(kernel))) * across // int(work.number(groups))


def _attention(work: Work, call: Call) -> int | None:
    """Scores and their sums over the keys, as if nothing were masked."""
    query = work.dims(call.args[0])
    start = work.argument(call, "start_pos")
    if start is None:
        return 4 * numel(query) * work.dims(call.args[1])[2]  # (B, H, S, D), keys (B, H, C, D)
    return 4 * numel(query) * (int(work.number(start)) + query[1])  # (B, S, H, D)


# By a part of the name, the first that fits.
_FLOPS: dict[str, Rule] = {
    "sdpa": _attention,
    "attention": _attention,
    "q8ta_conv2d": _quantised_convolution,
    "conv": _convolution,
    "addmm": _product(1),
    "baddbmm": _product(1),
    "webpte.linear_q4": _joined_product,
    "linear_dW": lambda work, call: 2 * numel(work.dims(call.args[0])) * work.dims(call.args[1])[-1],
    "linear": _product(0),
    "bmm": _product(0),
    "aten.mm": _product(0),
    "aten::mm": _product(0),
    "int8pack_mm": _product(0),
}
