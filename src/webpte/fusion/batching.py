"""Rewrite a model of one sequence for many: rows of (slot, position) in one pass over the weights.

Every call between the tokens and the logits must treat rows independently, with two exceptions. Attention takes the
position and the cache slot of each row. The selection of the last row becomes a gather of any rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from ..errors import UnsupportedError
from ..graph import (
    Bool,
    Call,
    Constant,
    Double,
    DType,
    Graph,
    Int,
    Jump,
    Null,
    Origin,
    Step,
    SymInt,
    TensorSpec,
    Value,
    ValueList,
    numel,
)
from ..graph.names import INT8_SCALE_BYTES, PREPACK
from .attention import ROTARY_ATTENTION, rotate_in_attention, whole_tables
from .decompositions import recompose
from .llm_rewrites import add_value, append_sampler
from .quantized_caches import own_quantized_caches
from .recurrences import ROLES as RECURRENT_ROLES
from .recurrences import SLOT_CONVOLUTION, num_checkpoints, recurrences
from .rewriter import Rewriter, role_of, roles
from .rings import ScoreLimits, unroll_rings
from .row_axes import REPLACED_ROWS, SLOT_ATTENTION, SLOT_ROTARY, Refuse, RowAxes, row_axes
from .row_axes import ROLES as ROW_ROLES

TOKENS, POSITION = range(2)  # inputs of a model
SLOT_MAPPING, NUM_DECODE, LOGITS_INDICES, POSITION_OFFSET = range(1, 5)  # after the tokens, in a model of many
MAX_LOGITS_ROWS = 32  # of one call

PATTERN = {
    "attention": ("sdpa_with_kv_cache.default",),
    "coded": ("custom_quantized_sdpa.default",),
    "position": ("et_vk.select_as_symint.default",),
    "gather": ("aten.index_select.default",),
    "view": ("aten.view_copy.default",),
    "size": ("sym_size.int",),
    "norm": ("et_vk.rms_norm.default",),
    "rotation": ("et_vk.apply_rotary_emb.default",),
}
ROLES = roles(PATTERN)
GATHER, VIEW, SIZE = (PATTERN[role][0] for role in ("gather", "view", "size"))


CacheDtypes = Mapping[DType, DType]  # of caches, by the dtype that the model stores them in
AS_STORED: CacheDtypes = MappingProxyType({})


@dataclass(frozen=True)
class SlottedGraph:
    """The rewritten graph. Its output is the logits of the gathered rows, (P, V)."""

    graph: Graph
    position_offset: int  # the value that the graph adds to all positions


def with_slots(graph: Graph, slots: int, caches: CacheDtypes = AS_STORED, embedding_rows: int = 0) -> SlottedGraph:
    """Rewrite the graph for `slots` sequences. `caches`: other dtypes for keys and values than the model's own.

    A row of int8, which is the key or the value of one head, ends with
    its scale, also if the model has scales and zero points of its own.

    The inputs become: the tokens (1, R); their slot mapping (R, 2) of slot and position; how many of the first rows are
    the only ones of their slots; the rows (P,) to return logits of; and a number that is added to all positions. Rows
    of one slot are contiguous, in the order of their positions. A row with a negative slot is idle.

    With `embedding_rows`, the state has that many rows of embeddings, `embedding_pool`. A token below 0 is one of them:
    -1 the first, -2 the second.
    """
    return _SlotRewrite(graph, slots, caches, embedding_rows).result()


def with_sampled_slots(graph: Graph, slots: int, caches: CacheDtypes = AS_STORED, embedding_rows: int = 0) -> Graph:
    """Apply `with_slots`, and append the sampler: its inputs come last, the outputs are those of `with_sampler`."""
    slotted = with_slots(graph, slots, caches, embedding_rows)
    values, steps = list(slotted.graph.values), list(slotted.graph.steps)
    (logits,) = slotted.graph.outputs
    sampler = append_sampler(values, steps, logits, slotted.position_offset, steps[-1].origin)
    return replace(
        slotted.graph,
        values=tuple(values),
        steps=tuple(steps),
        inputs=(*slotted.graph.inputs, *sampler.inputs),
        outputs=(logits, *sampler.outputs),
    )


def embedding_pool(graph: Graph) -> int | None:
    """Return the state (P, N) with the rows of embeddings of a graph that was rewritten for them; None without it."""
    return next((call.args[-1] for call in graph.calls if call.name == REPLACED_ROWS), None)


def with_replaced_rows(graph: Graph, tokens: int, rows: int, refuse: Refuse) -> Graph:
    """Replace the rows of tokens below 0 after the lookup of the tokens' embeddings, by those of a new state."""
    lookups = [
        index
        for index, step in enumerate(graph.steps)
        if isinstance(step, Call) and role_of(step, ROW_ROLES) == "lookup" and tokens in step.args
    ]
    if len(lookups) != 1:
        raise refuse(f"expected one lookup of the embeddings of its tokens, got {len(lookups)}", "embedding_lookup")
    if any(isinstance(step, Jump) for step in graph.steps):
        raise refuse("it has branches", "branches")
    values: list[Value] = list(graph.values)
    lookup = graph.call(lookups[0])
    (embedded,) = lookup.outs
    spec = graph.tensor(embedded)
    pool = add_value(values, replace(spec, dims=(rows, spec.dims[-1]), dynamic=False, mutable=True))
    looked_up = add_value(values, spec)
    steps = [*graph.steps]
    steps[lookups[0]] = replace(lookup, outs=(looked_up,))
    steps.insert(lookups[0] + 1, Call(REPLACED_ROWS, (looked_up, tokens, pool), (embedded,), lookup.origin))
    return replace(graph, values=tuple(values), steps=tuple(steps))


class _HeadNorms(NamedTuple):
    """Queries and keys before their norms, and the row of the table where the weights begin."""

    query: int
    key: int
    row: int
    eps: Double


@dataclass
class _SlotTable:
    """Rotary tables as one tensor: the cosines and weights of norms of queries, then the sines and those of keys."""

    value: int
    first: TensorSpec  # the cosines, (P, W)
    halves: tuple[list[Constant], list[Constant]]
    rows: int = 0  # of weights, in each half

    def takes(self, weight: TensorSpec) -> bool:
        """Return whether the weights of a norm are whole rows of the tables."""
        constants = [spec.constant.dtype for spec in (self.first, weight) if spec.constant is not None]
        same = {self.first.dtype, weight.dtype, *constants} == {DType.FLOAT32}
        return same and len(weight.dims) == 1 and weight.dims[0] % self.first.dims[1] == 0

    def add(self, query: TensorSpec, key: TensorSpec) -> int:
        """Add the weights of the norms of a layer, and return their first row."""
        row = self.first.dims[0] + self.rows
        for half, weight in zip(self.halves, (query, key), strict=True):
            assert weight.constant is not None
            half.append(weight.constant)
        self.rows += query.dims[0] // self.first.dims[1]
        return row

    def add_sinks(self, sinks: TensorSpec) -> int:
        """Add the sinks of a layer, repeated to whole rows, and return their first row."""
        assert sinks.constant is not None
        row, width, heads = self.first.dims[0] + self.rows, self.first.dims[1], numel(sinks.dims)
        for half in self.halves:  # they are read from the first, and the second is as long
            half += [sinks.constant] * (math.lcm(heads, width) // heads)
        self.rows += math.lcm(heads, width) // width
        return row

    def spec(self) -> TensorSpec:
        assert self.first.constant is not None
        first, *rest = [span for half in self.halves for constant in half for span in constant.spans]
        rows, width = self.first.dims
        constant = replace(self.first.constant, span=first, rest=tuple(rest))
        return replace(self.first, dims=(2, rows + self.rows, width), constant=constant)


class _SlotRewrite:
    def __init__(self, graph: Graph, slots: int, caches: CacheDtypes, embedding_rows: int) -> None:
        self.name = graph.name
        self.embedding_rows = embedding_rows
        self._check_inputs(graph)
        graph, self.limits = unroll_rings(graph)
        self.rewriter = rewriter = Rewriter(rotate_in_attention(own_quantized_caches(recompose(graph))))
        self.slots = slots
        self.caches = caches
        self.rows = graph.tensor(graph.inputs[TOKENS]).dims[1]
        self.max_logits_rows = min(self.rows, MAX_LOGITS_ROWS)
        self.tokens, self.position = graph.inputs
        self.slot_mapping = rewriter.add(_integers(self.rows, 2))
        self.logits_indices = rewriter.add(_integers(self.max_logits_rows))
        self.position_offset = rewriter.add(SymInt())
        self.num_decode = rewriter.add(SymInt())
        self.pools: set[int] = set()
        self.normed: set[int] = set()  # queries and keys whose norms are part of the attention
        self.tables: dict[tuple[int, int], _SlotTable] = {}

    def result(self) -> SlottedGraph:
        self._replace_recurrences()
        self._replace_attention()
        self._replace_rotations()
        self._drop_positions()
        graph = self.rewriter.result()
        if self.embedding_rows:
            graph = with_replaced_rows(graph, self.tokens, self.embedding_rows, self.refuse)
        axes = row_axes(graph, self.tokens, self.refuse)
        graph = self._with_gathered_rows(graph, axes)
        inputs = (self.tokens, self.slot_mapping, self.num_decode, self.logits_indices, self.position_offset)
        return SlottedGraph(replace(graph, inputs=inputs), self.position_offset)

    def refuse(self, reason: str, code: str) -> UnsupportedError:
        """Return the error for a graph that cannot be rewritten."""
        return UnsupportedError(f"{self.name} cannot run several sequences at once: {reason}", code=code)

    def _check_inputs(self, graph: Graph) -> None:
        specs = [graph.values[value_id] for value_id in graph.inputs]
        dims = [spec.dims if isinstance(spec, TensorSpec) else () for spec in specs]
        if len(dims) != 2 or len(dims[TOKENS]) != 2 or dims[TOKENS][0] != 1 or dims[POSITION] != (1,):
            raise self.refuse(
                f"expected the inputs tokens (1, n) and position (1), got {', '.join(map(str, specs))}", "other_inputs"
            )
        if dims[TOKENS][1] == 1:
            raise self.refuse("it takes one token at a time. Export it with dynamic shapes", "static_shapes")
        if any(isinstance(step, Jump) for step in graph.steps):
            raise self.refuse("it has branches", "branches")

    def _replace_recurrences(self) -> None:
        """Let layers with a recurrent state read and write those of the slots of their rows."""
        rewriter, layers = self.rewriter, recurrences(self.rewriter)
        first = num_checkpoints(layers)
        for layer in layers:
            at, before = rewriter.producers[layer.out][0], rewriter.call(layer.update)
            assert before is not None
            operands = {**layer.operands, "state": layer.state, "slot_mapping": self.slot_mapping}
            if layer.op == SLOT_CONVOLUTION:
                operands["num_decode"] = self.num_decode
            operands |= {"advance": self.position_offset, "first": Int(first)}
            call = rewriter.make(layer.op, [layer.out], before.origin, **operands)
            rewriter.replace([layer.update, at], call, at)
        rewriter.drop_unread(RECURRENT_ROLES)
        for layer in layers:
            self._enlarge(layer.state, (first + self.slots, *layer.dims), layer.op)

    # -- attention -------------------------------------------------------------------------------------------------

    def _replace_attention(self) -> None:
        rewriter, replaced = self.rewriter, 0
        for index in range(len(rewriter.steps)):
            call = rewriter.call(index)
            if call is not None and role_of(call, ROLES) == "coded":
                raise self.refuse(
                    f"the int8 caches of {call.origin} contain other codes than those of its keys and values",
                    "coded_cache",
                )
            if call is None or not self._is_attention(index):
                continue
            replaced += 1
            rewriter.replace([index], self._slot_attention(call), index)
        for value_id in self.normed - {value_id for value_id, users in rewriter.users.items() if users}:
            rewriter.drop(rewriter.producers[value_id][0])
        if self.rewriter.mutated - self.pools:
            raise self.refuse("it has state other than the caches of its attention", "extra_state")
        if not replaced:
            raise self.refuse(
                "it has no attention with its own KV cache. Export it with use_sdpa_with_kv_cache", "no_cache"
            )

    def _slot_attention(self, call: Call) -> Call:
        arguments = self.rewriter.arguments(call)
        self._check_attention(call, arguments)
        table, norms = None, None
        limits = self.limits.get(call.outs[0], ScoreLimits())
        if call.name == ROTARY_ATTENTION:
            table = self._table(arguments["cosine"], arguments["sine"])
            norms = self._head_norms(arguments["query"], arguments["key"], table) if limits.sinks is None else None
        return self.rewriter.make(
            SLOT_ATTENTION,
            call.outs,
            call.origin,
            query=arguments["query"] if norms is None else norms.query,
            key=arguments["key"] if norms is None else norms.key,
            **{name: arguments[name] for name in ("value", "scale")},
            key_cache=self._pool(arguments["key_cache"], call),
            value_cache=self._pool(arguments["value_cache"], call),
            slot_mapping=self.slot_mapping,
            advance=self.position_offset,
            num_decode=self.num_decode,
            table=None if table is None else table.value,
            halves=Bool(False) if table is None else arguments["halves"],
            window=None if limits.window is None else Int(limits.window),
            cap=None if limits.cap is None else Double(limits.cap),
            norm_row=None if norms is None else Int(norms.row),
            norm_eps=None if norms is None else norms.eps,
            sink_row=None if limits.sinks is None else Int(self._sink_row(call, limits.sinks, table)),
        )

    def _sink_row(self, call: Call, sinks: int, table: _SlotTable | None) -> int:
        """Add the sinks of an attention to its rotary table, since a kernel has few bindings, and return their row."""
        spec = self.rewriter.values[sinks]
        assert isinstance(spec, TensorSpec)
        if table is None or {spec.dtype, table.first.dtype} != {DType.FLOAT32}:
            raise self.refuse(f"the attention of {call.origin} has sinks, and no rotary tables in f32", "sinks")
        row = table.add_sinks(spec)
        self.rewriter.values[table.value] = table.spec()
        return row

    def _is_attention(self, index: int) -> bool:
        call = self.rewriter.call(index)
        return call is not None and (call.name == ROTARY_ATTENTION or role_of(call, ROLES) == "attention")

    def _same_rows(self, steps: Sequence[int]) -> bool:
        """Return whether all these are attentions that write the same keys and values."""
        if not all(map(self._is_attention, steps)):
            return False
        calls = [call for call in map(self.rewriter.call, steps) if call is not None]
        arguments = [self.rewriter.arguments(call) for call in calls]
        return len({(each["key"], each["value"]) for each in arguments}) == 1

    def _check_attention(self, call: Call, arguments: dict[str, int]) -> None:
        values = self.rewriter.values
        mask = arguments.get("attn_mask")
        if (mask is not None and not isinstance(values[mask], Null)) or values[arguments["is_causal"]] != Bool(True):
            raise self.refuse(f"the attention of {call.origin} takes a custom mask", "custom_mask")
        starts = [arguments["start_pos"], *([arguments["table_start"]] if "table_start" in arguments else [])]
        if not all(map(self._is_position, starts)):
            raise self.refuse(f"the position of {call.origin} is not the input position", "other_position")

    def _is_position(self, value_id: int) -> bool:
        producer = self.rewriter.producer(value_id)
        if producer is None or role_of(producer[1], ROLES) != "position":
            return False
        return producer[1].args[0] == self.position  # it has one element

    def _pool(self, cache: int, call: Call) -> int:
        """Enlarge the cache of one sequence to all slots, and return its id. Several attentions may have one cache."""
        if cache in self.pools:
            return cache
        spec = self.rewriter.values[cache]
        if not isinstance(spec, TensorSpec) or len(spec.dims) != 4 or spec.dims[0] != 1:
            raise self.refuse(f"expected caches of shape (1, C, H, D), got {spec}", "cache_shape")
        dtype = self.caches.get(spec.dtype, spec.dtype)
        scale = INT8_SCALE_BYTES if dtype is DType.INT8 else 0
        self._enlarge(cache, (self.slots, *spec.dims[1:3], spec.dims[3] + scale), call.origin, dtype)
        return cache

    def _enlarge(self, state: int, dims: tuple[int, ...], reader: object, dtype: DType | None = None) -> None:
        """Let the state of one sequence have these dims, for all slots."""
        spec = self.rewriter.values[state]
        users = self.rewriter.users[state]
        shared = len(users) > 1 and not self._same_rows(users)
        if not isinstance(spec, TensorSpec) or not spec.stored or not users or shared:
            raise self.refuse(f"the state of {reader} is shared with other calls", "shared_cache")
        self.rewriter.values[state] = replace(
            spec,
            dtype=dtype or spec.dtype,
            dims=dims,
            constant=None,  # rows are read after they were written
            mutable=True,
        )
        self.pools.add(state)

    def _table(self, cosine: int, sine: int) -> _SlotTable:
        """Return both tables as one tensor (2, P, W), since a kernel has few bindings."""
        if (cosine, sine) not in self.tables:
            first, second = self._constant(cosine), self._constant(sine)
            if first is None or second is None or (first.dims, first.dtype) != (second.dims, second.dtype):
                raise self.refuse("its rotary tables are computed, not stored", "computed_table")
            assert first.constant is not None and second.constant is not None
            table = _SlotTable(self.rewriter.add(first), first, ([first.constant], [second.constant]))
            self.rewriter.values[table.value] = table.spec()
            self.tables[cosine, sine] = table
        return self.tables[cosine, sine]

    def _head_norms(self, query: int, key: int, table: _SlotTable) -> _HeadNorms | None:
        """Return the norms of queries and keys, which become part of the attention, with their weights in the table."""
        rewriter, options, weights = self.rewriter, [], []
        for value_id in (query, key):
            producer = rewriter.producer(value_id)
            if producer is None or role_of(producer[1], ROLES) != "norm" or value_id in rewriter.outputs:
                return None
            options.append(rewriter.arguments(producer[1]))
            weight = self._constant(options[-1]["weight"])
            if weight is None or not rewriter.is_immutable(options[-1]["x"]) or not table.takes(weight):
                return None
            weights.append(weight)
        eps = [rewriter.values[each["eps"]] for each in options]
        if eps[0] != eps[1] or not isinstance(eps[0], Double) or weights[0].dims != weights[1].dims:
            return None
        row = table.add(*weights)
        rewriter.values[table.value] = table.spec()
        self.normed |= {query, key}
        return _HeadNorms(options[0]["x"], options[1]["x"], row, eps[0])

    def _constant(self, value_id: int) -> TensorSpec | None:
        producer = self.rewriter.producer(value_id)
        if producer is not None and producer[1].name == PREPACK:
            value_id = producer[1].args[0]
        spec = self.rewriter.values[value_id]
        return spec if isinstance(spec, TensorSpec) and spec.constant is not None else None

    def _replace_rotations(self) -> None:
        """Let queries and keys that rotate before their norms take the rows of whole tables."""
        rewriter = self.rewriter
        for index in range(len(rewriter.steps)):
            call = rewriter.call(index)
            if call is None or role_of(call, ROLES) != "rotation":
                continue
            arguments = rewriter.arguments(call)
            tables = whole_tables(rewriter, arguments["freqs_cos"], arguments["freqs_sin"], self.position)
            if tables.start is None or not self._is_position(tables.start):
                raise self.refuse(f"the rotation of {call.origin} is not by the input position", "other_position")
            arguments |= {"freqs_cos": tables.cosine, "freqs_sin": tables.sine}
            rotation = rewriter.make(
                SLOT_ROTARY,
                call.outs,
                call.origin,
                **arguments,
                slot_mapping=self.slot_mapping,
                advance=self.position_offset,
            )
            rewriter.replace([index], rotation, index)
        rewriter.drop_unread(RECURRENT_ROLES)

    def _drop_positions(self) -> None:
        """Remove the readers of the position, whose results must have no readers."""
        rewriter = self.rewriter
        for index in list(rewriter.users[self.position]):
            call = rewriter.call(index)
            assert call is not None
            if any(rewriter.users.get(out) for out in call.outs):
                user = rewriter.call(next(user for out in call.outs for user in rewriter.users.get(out, ())))
                raise self.refuse(f"{user.name if user else 'a call'} depends on the position", "position_use")
            rewriter.drop(index)

    # -- the head --------------------------------------------------------------------------------------------------

    def _with_gathered_rows(self, graph: Graph, axes: RowAxes) -> Graph:
        """Gather the rows to return logits of before the head of the model, and drop its selection of the last row."""
        head = axes.head(graph.outputs[0])
        head_steps = set(head.steps)
        values: list[Value] = list(graph.values)
        origin = graph.steps[head.steps[0]].origin
        gathered = add_value(values, self._gathered_spec(graph.tensor(head.source), axes.axis[head.source]))
        count = add_value(values, SymInt())
        steps: list[Step] = []
        for index, step in enumerate(graph.steps):
            if index == head.steps[0]:
                axis = add_value(values, Int(axes.axis[head.source]))
                steps.append(Call(SIZE, (self.logits_indices, add_value(values, Int(0))), (count,), origin))
                steps.append(Call(GATHER, (head.source, axis, self.logits_indices), (gathered,), origin))
            if index in head_steps:
                assert isinstance(step, Call)
                for out in step.outs:
                    values[out] = self._gathered_spec(graph.tensor(out), axes.axis[out])
                step = replace(step, args=tuple(gathered if a == head.source else a for a in step.args))
                if index == head.last:
                    step = _reshaped(values, step.args[0], count, step.outs[0], step.origin)
            steps.append(step)
        logits = graph.outputs[0]
        spec = values[logits]
        assert isinstance(spec, TensorSpec)
        if len(spec.dims) == 3:  # (1, P, V)
            flat = add_value(values, replace(spec, dims=spec.dims[1:]))
            steps.append(_reshaped(values, logits, count, flat, origin))
            logits = flat
        return replace(graph, values=tuple(values), steps=tuple(steps), outputs=(logits,))

    def _gathered_spec(self, spec: TensorSpec, axis: int) -> TensorSpec:
        return replace(spec, dims=(*spec.dims[:axis], self.max_logits_rows, *spec.dims[axis + 1 :]))


def _integers(*dims: int) -> TensorSpec:
    return TensorSpec(DType.INT32, dims, DType.INT32, dynamic=True)


def _reshaped(values: list[Value], source: int, count: int, out: int, origin: Origin) -> Call:
    """Return the view of (1, P, N) as (P, N), with `count` rows."""
    spec = values[out]
    assert isinstance(spec, TensorSpec)
    sizes = add_value(values, ValueList((count, *(add_value(values, Int(size)) for size in spec.dims[1:]))))
    return Call(VIEW, (source, sizes), (out,), origin)
