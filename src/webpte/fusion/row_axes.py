"""Find the row axis of each value: the dim with one entry for each token.

A call treats rows independently if its result for a token depends on no other token. Calls that are not known to do so
are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import Error
from ..graph import Call, Graph, Int, IntList, TensorSpec, normalize_dim, numel
from ..graph.names import EXPERTS
from ..lowering import elementwise_op, find
from .recurrences import SLOT_CONVOLUTION, SLOT_DELTA_RULE
from .rewriter import role_of, roles

# Attention of tokens of several sequences: see ops/attention/slot_attention.py.
SLOT_ATTENTION = "webpte.slot_attention"
SLOT_ROTARY = "webpte.slot_rotary"  # rotation by the positions of rows: see ops/attention/rotary.py
REPLACED_ROWS = "webpte.replaced_rows"  # embeddings of an encoder: see ops/embedding/replaced_rows.py
PATTERN = {
    "size": ("sym_size.int",),
    "last": ("aten.select_copy.int",),
    "slice": ("aten.slice_copy.Tensor",),
    # Each row of the results depends on the same row of the arguments:
    "slots": (SLOT_ATTENTION, SLOT_CONVOLUTION, SLOT_ROTARY),
    "recurrence": (SLOT_DELTA_RULE,),
    "lookup": (
        "aten.embedding.default",
        "et_vk.embedding_q4gsw.default",
        "quantized_decomposed.embedding_byte.dtype",
        "quantized_decomposed.embedding_4bit.dtype",
    ),
    "replaced": (REPLACED_ROWS,),
    "rows": (
        "aten.linear.default",
        "et_vk.linear_q4gsw.default",
        "et_vk.linear_dq8ca_q4gsw.default",
        "aten._weight_int8pack_mm.default",
        "et_vk.rms_norm.default",
        EXPERTS,
    ),
    "product": ("aten.mm.default",),  # if the second matrix has no rows
    "sum": ("aten.sum.dim_IntList",),  # of the last dim alone
    "blocks": ("torchao.choose_qparams_affine.default",),
}
ROLES = roles(PATTERN)
Refuse = Callable[[str, str], Error]


class Head(NamedTuple):
    """The last calls of a model, which turn each row into logits independently."""

    source: int  # the value that they read
    steps: tuple[int, ...]
    last: int | None  # the step among them that selects the last row


@dataclass
class RowAxes:
    """The row axis of each value."""

    graph: Graph
    refuse: Refuse
    axis: dict[int, int]
    producers: dict[int, int] = field(default_factory=dict)  # value -> step

    def follow(self) -> None:
        for index, call in enumerate(self.graph.steps):
            assert isinstance(call, Call)
            carried = self.carried(call)
            if not carried or role_of(call, ROLES) == "size":
                continue
            if not self._by_rows(call, carried):
                raise self.refuse(f"{call.name} ({call.origin}) may mix tokens", "mixed_tokens")
            self.producers.update(dict.fromkeys(call.outs, index))

    def carried(self, call: Call) -> list[int]:
        """Return the arguments that have rows."""
        return [value_id for value_id in self.graph.flatten(call.args) if value_id in self.axis]

    def head(self, output: int) -> Head:
        """Return the calls after the last value that several calls read."""
        if output not in self.axis:
            raise self.refuse("its output does not depend on its tokens", "other_output")
        steps: set[int] = set()
        sources: set[int] = set()
        pending = [output]
        while pending:
            value_id = pending.pop()
            index = self.producers.get(value_id)
            if index is None or not self._in_head(index):
                sources.add(value_id)
            elif index not in steps:
                steps.add(index)
                pending.extend(self.carried(self.graph.call(index)))
        if len(sources) != 1 or not steps:
            raise self.refuse("its logits depend on more than one value with rows", "several_logits")
        last = [index for index in steps if role_of(self.graph.call(index), ROLES) == "last"]
        return Head(sources.pop(), tuple(sorted(steps)), last[0] if last else None)

    def _in_head(self, index: int) -> bool:
        call = self.graph.call(index)
        same_values = len(set(self.carried(call))) == 1
        role = role_of(call, ROLES)
        if role == "last":
            return self._dim_of(call) == self.axis[call.args[0]]
        return role in ("rows", "blocks") or (same_values and elementwise_op(call) is not None)

    def _by_rows(self, call: Call, carried: Sequence[int]) -> bool:
        role = role_of(call, ROLES)
        if role in ("last", "slice"):
            return self._takes_last(call) if self._dim_of(call) == self.axis[carried[0]] else self._takes_columns(call)
        if role == "recurrence":  # of (1, S, N) and tables (S, H): the result is (S, H, V)
            self.axis[call.outs[0]] = 0
            return [self.axis[value_id] for value_id in carried] == [1, 0, 0]
        op = find(call)
        if op is not None and op.traits.view is not None:
            return self._reshapes(call, carried)
        if elementwise_op(call) is not None:
            return self._elementwise(call, carried)
        if role not in ("rows", "product", "sum", "blocks", "slots", "lookup", "replaced"):
            return False
        if (role == "sum" and not self._sums_last(call)) or (role == "product" and call.args[1] in self.axis):
            return False
        axis = self.axis[carried[0]]
        self.axis.update(dict.fromkeys(call.outs, axis))
        if any(self.axis[value_id] != axis for value_id in carried):
            return False
        summed = role in ("rows", "product", "sum") and axis == self._rank(carried[0]) - 1  # over the whole last dim
        return not summed and (role != "blocks" or self._one_row_each(call, axis))

    def _sums_last(self, call: Call) -> bool:
        rank, axes = self._rank(call.args[0]), self.graph.values[call.args[1]]
        return isinstance(axes, IntList) and [normalize_dim(axis, rank) for axis in axes.values] == [rank - 1]

    def _one_row_each(self, call: Call, axis: int) -> bool:
        sizes = [self.graph.values[value_id] for value_id in call.args]
        return any(isinstance(size, IntList) and size.values[axis] == 1 for size in sizes)

    def _takes_last(self, call: Call) -> bool:
        """Check x[:, -1] of (1, S, N), which moves the row axis to that of the batch."""
        source, _, place, *of_slice = call.args
        self.axis[call.outs[0]] = 0
        is_last = self.axis[source] == 1 and not of_slice and self.graph.values[place] == Int(-1)
        return is_last and self._dims(source)[0] == 1

    def _takes_columns(self, call: Call) -> bool:
        """Check a part of another dim than that of the rows. A selected dim before the rows moves them."""
        source, dim = call.args[0], self._dim_of(call)
        if dim is None:
            return False
        self.axis[call.outs[0]] = self.axis[source] - (role_of(call, ROLES) == "last" and dim < self.axis[source])
        return True

    def _dim_of(self, call: Call) -> int | None:
        """Return the dim that a call takes a part of."""
        dim = self.graph.values[call.args[1]]
        return normalize_dim(dim.value, self._rank(call.args[0])) if isinstance(dim, Int) else None

    def _reshapes(self, call: Call, carried: Sequence[int]) -> bool:
        """Check a reshape: all dims before the row axis must be 1, in the source and in the result."""
        source, (out,) = carried[0], call.outs
        before, after, axis = self._dims(source), self._dims(out), self.axis[source]
        candidates = [i for i, size in enumerate(after) if size == before[axis] and numel(after[:i]) == 1]
        if numel(before[:axis]) != 1 or not candidates:
            return False
        self.axis[out] = candidates[0]
        return True

    def _elementwise(self, call: Call, carried: Sequence[int]) -> bool:
        """Check operands, which are aligned at their last dims. One without rows must be constant along them."""
        (out,) = call.outs
        ranks_after = {self._rank(value_id) - self.axis[value_id] for value_id in carried}
        place = min(ranks_after)
        self.axis[out] = self._rank(out) - place
        return len(ranks_after) == 1 and all(
            self._rank(value_id) < place or self._dims(value_id)[-place] == 1
            for value_id in self.graph.flatten(call.args)
            if value_id not in self.axis and isinstance(self.graph.values[value_id], TensorSpec)
        )

    def _dims(self, value_id: int) -> tuple[int, ...]:
        return self.graph.tensor(value_id).dims

    def _rank(self, value_id: int) -> int:
        return len(self._dims(value_id))


def row_axes(graph: Graph, tokens: int, refuse: Refuse) -> RowAxes:
    """Return the row axes of a graph without branches, whose tokens are (1, S)."""
    axes = RowAxes(graph, refuse, {tokens: 1})
    axes.follow()
    return axes
