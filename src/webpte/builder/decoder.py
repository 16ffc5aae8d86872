"""Record the calls of a decoder, as ExecuTorch writes them when it exports a Llama."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..checkpoints.architecture import Architecture, LayerSpec
from ..checkpoints.recipe import EMBEDDING, INT8, PER_LAYER_EMBEDDING
from ..container import DType
from .layers import LayerTrace
from .ops import constant, zeros
from .recurrent import RecurrentTrace
from .trace import TracedInt, TracedTensor

KeysAndValues = tuple[TracedTensor, TracedTensor]  # of the tokens of a call, (1, S, K, D)
HIDDEN = 1e30  # subtracted from scores once for each position beyond the window: the weight becomes 0


@dataclass
class RingRows:
    """The rows of a ring cache that a call uses."""

    layer: LayerSpec
    index: TracedTensor  # the row of each token, (S,)
    place: TracedTensor  # the same as floats, (S, 1)
    back: TracedTensor  # the positions before each token that it attends to, (S, 1)
    mask: TracedTensor | None = None  # added to the scores, (S, R)


@dataclass
class TokenPositions:
    """The positions of a call's tokens. What only some layers need is computed when the first of them does."""

    first: TracedTensor  # (1,), the input
    count: TracedInt
    turns: dict[str, tuple[TracedTensor, TracedTensor]]  # cosines and sines by the rope's name, (S, D / 2)
    rings: dict[tuple[int, int | None], RingRows] = field(default_factory=dict)  # by rows and window
    start: TracedInt | None = None
    recurrent: RecurrentTrace | None = None  # of layers with a recurrent state
    per_layer: TracedTensor | None = None  # the embeddings of layers, (1, S, L, P)
    wide_turns: dict[str, tuple[TracedTensor, TracedTensor]] = field(default_factory=dict)  # (1, S, 1, D / 2)


class DecoderTrace:
    """A decoder of (tokens, position). Each part is recorded when its method is called."""

    def __init__(self, layers: LayerTrace, model: Architecture, max_context: int, max_tokens: int) -> None:
        self.g = layers
        self.model = model.with_rows(max_context, max_tokens)
        self.max_context, self.max_tokens = max_context, max_tokens
        self._assignments: list[tuple[TracedTensor, TracedTensor]] = []  # states and their new values
        self.new_rows: dict[int, KeysAndValues] = {}  # of layers with rings, rotated
        self._written: dict[int, list[TracedTensor]] = {}  # the rings of a layer with its new rows, (1, K, R, D)

    def logits(self) -> TracedTensor:
        """Record the whole decoder; return the logits of the last token, (1, V)."""
        g, model = self.g, self.model
        tokens = g.input("tokens", DType.INT64, (1, TracedInt(self.max_tokens - 1)))
        first = g.input("attn_options_input_pos", DType.INT64, (1,))
        if g.format(EMBEDDING) == INT8:  # a kernel call: before all delegates
            x = g.embedding(tokens)  # (1, S, N)
            positions = self.positions(tokens, first)
        else:
            positions = self.positions(tokens, first)
            x = g.embedding(tokens)
        if model.per_layer_dim:
            positions.per_layer = self.per_layer(x, g.embedding(tokens, PER_LAYER_EMBEDDING))
        for number in range(model.n_layers):
            x = self.block(x, number, positions)
        logits = self.head(g.select(x, 1, -1))
        self.assign_states()
        return logits

    def head(self, x: TracedTensor) -> TracedTensor:
        """Record the last norm and the head, of one token (1, N) or of all (1, S, N)."""
        g, model = self.g, self.model
        return g.capped(g.linear(g.norm(x, "norm", model.norm_eps), "output"), model.logits_cap)

    def block(self, x: TracedTensor, number: int, positions: TokenPositions) -> TracedTensor:
        """Record attention and feed-forward, each after a norm, or before one, and added to its input."""
        g, model, name = self.g, self.model, f"layers.{number}"
        normed = g.norm(x, f"{name}.attention_norm", model.norm_eps) if model.pre_norms else x
        mixed = self._mixed(normed, number, positions)
        if model.post_norms:
            mixed = g.norm(mixed, f"{name}.post_attention_norm", model.norm_eps)
        x = g.add(x, mixed)
        normed = g.norm(x, f"{name}.ffn_norm", model.norm_eps) if model.pre_norms else x
        out = self._fed_forward(normed, number)
        if model.post_norms:
            out = g.norm(out, f"{name}.post_ffn_norm", model.norm_eps)
        x = g.add(x, out)
        if positions.per_layer is not None:
            gate = self._activation(g.linear(x, f"{name}.per_layer_gate"))
            out = g.linear(g.mul(gate, g.select(positions.per_layer, 2, number)), f"{name}.per_layer_out")
            x = g.add(x, g.norm(out, f"{name}.per_layer_out_norm", model.norm_eps))
        return g.mul(x, g.packed(g.parameter(f"{name}.scale.weight"))) if model.layer_scales else x

    def per_layer(self, x: TracedTensor, rows: TracedTensor) -> TracedTensor:
        """Record what layers add for tokens, (1, S, L, P): rows of a table, and a projection of the embeddings."""
        g, model = self.g, self.model
        dims = (*x.dims[:2], model.n_layers, model.per_layer_dim)
        projected = g.view(g.linear(x, "per_layer_projection"), dims)
        return g.add(g.norm(projected, "per_layer_norm", model.norm_eps), g.view(rows, dims))

    def _fed_forward(self, x: TracedTensor, number: int) -> TracedTensor:
        """Record the feed-forward of a layer, its experts, or the sum of both."""
        g, model, name = self.g, self.model, f"layers.{number}"
        experts = model.layers[number].experts
        if experts is None:
            return self.feed_forward(x, f"{name}.feed_forward")
        out = g.mixture(x, name, experts, model.activation)
        if not experts.shared:
            return out
        shared = self.feed_forward(x, f"{name}.feed_forward")
        if experts.shared_gate:
            shared = g.mul(shared, g.unary("sigmoid", g.linear(x, f"{name}.shared_gate")))
        return g.add(out, shared)

    def assign_states(self) -> None:
        """Record the new values of states, at the end."""
        for state, value in self._assignments:
            self.g.assign(state, value)

    def feed_forward(self, x: TracedTensor, name: str) -> TracedTensor:
        g = self.g
        if self.model.activation == "xielu":
            slopes = [g.packed(g.parameter(f"{name}.{part}")) for part in ("alpha_p", "alpha_n")]
            return g.linear(g.xielu(g.linear(x, f"{name}.w3"), *slopes), f"{name}.w2")
        if not self.model.gated_mlp:
            return g.linear(self._activation(g.linear(x, f"{name}.w3")), f"{name}.w2")
        gate = self._activation(g.linear(x, f"{name}.w1"))
        return g.linear(g.mul(gate, g.linear(x, f"{name}.w3")), f"{name}.w2")

    def _activation(self, x: TracedTensor) -> TracedTensor:
        g = self.g
        return {"silu": g.silu, "gelu_tanh": g.gelu_tanh, "relu2": g.relu2}[self.model.activation](x)

    def _mixed(self, x: TracedTensor, number: int, positions: TokenPositions) -> TracedTensor:
        """Record what the layer has in the place of attention."""
        layer, recurrent = self.model.layers[number], positions.recurrent
        if recurrent is not None and layer.taps:
            return recurrent.short_conv(x, f"layers.{number}.conv", layer.taps)
        if recurrent is not None and layer.delta is not None:
            return recurrent.delta_attention(x, f"layers.{number}.attention", layer.delta)
        return self.attention(x, number, positions)

    def attention(self, x: TracedTensor, number: int, positions: TokenPositions) -> TracedTensor:
        """Record grouped heads over a cache. Heads may have a query and a gate."""
        g, model, name = self.g, self.model, f"layers.{number}.attention"
        q = g.linear(x, f"{name}.wq", model.n_heads)  # (1, S, H, D), or (1, S, H, 2 D)
        width, gate = model.head_width(number), None
        if model.query_gate:
            q, gate = g.slice(q, 3, 0, width, width), g.slice(q, 3, width, 2 * width, width)
        rows = None
        if model.layers[number].shares is None:
            k, v = (g.linear(x, f"{name}.{part}", model.n_kv_heads) for part in ("wk", "wv"))
            rows = k, self._normed_value(v) if model.value_norm else v
        mixed = self.mix(q, rows, number, positions)
        return g.linear(mixed if gate is None else g.mul(mixed, g.unary("sigmoid", gate)), f"{name}.wo")

    def mix(self, q: TracedTensor, rows: KeysAndValues | None, number: int, positions: TokenPositions) -> TracedTensor:
        """Record the attention of each query, (1, S, H, D), to new rows and earlier ones; None: to another layer's."""
        g, model, name = self.g, self.model, f"layers.{number}.attention"
        layer = model.layers[number]
        if model.qk_norm and not model.qk_norm_rotated:
            q = self._normed(q, f"{name}.q_norm")
            rows = None if rows is None else (self._normed(rows[0], f"{name}.k_norm"), rows[1])
        if layer.rows is not None or rows is None:
            return self._ring_attention(q, rows, number, positions)
        k, v = rows
        if layer.rope is not None:
            q, k = g.call_several(
                "et_vk.apply_rotary_emb.default", q, k, *positions.turns[layer.rope], dims=(q.dims, k.dims)
            )
        if model.qk_norm_rotated:
            q, k = self._normed(q, f"{name}.q_norm"), self._normed(k, f"{name}.k_norm")
        size = (1, self.max_context, model.n_kv_heads, model.head_width(number))
        caches = [zeros(size) for _ in range(2)]
        start = self._start(positions)
        # The mask, dropout, causality and scale of the op; the integer before them is not used.
        return g.call("sdpa_with_kv_cache.default", q, k, v, *caches, start, 1, None, 0, True, None, dims=q.dims)

    def _normed_value(self, x: TracedTensor) -> TracedTensor:
        """Record the norm of values, (1, S, H, D), which has no weights."""
        (*_, width) = x.bounds
        return self.g.rms_norm(x, constant(f"{width} ones", np.ones(width, "<f4")), self.model.norm_eps)

    def _normed(self, x: TracedTensor, name: str) -> TracedTensor:
        """Record the norm of queries or keys, (1, S, H, D): of each head, or of all heads together."""
        g, model = self.g, self.model
        if model.qk_norm_by_head:
            return g.norm(x, name, model.norm_eps)
        return g.view(g.norm(g.view(x, (*x.dims[:2], -1)), name, model.norm_eps), x.dims)

    # ---------------------------------------------------------------- positions

    def positions(self, tokens: TracedTensor, first: TracedTensor) -> TokenPositions:
        """Record the positions of tokens (1, S) or of their hidden states (1, S, N)."""
        g, model = self.g, self.model
        count = g.size(tokens, 1)
        tables = {name: self._rotary_constants(name) for name in model.ropes}
        if all(layer.rows is None for layer in model.layers):
            start = g.element(first, 0, self.max_context - 1)
            end = g.plus(start, count)
            turns = {
                name: (
                    g.slice(g.packed(cosines), 0, start, end, count),
                    g.slice(g.packed(sines), 0, start, end, count),
                )
                for name, (cosines, sines) in tables.items()
            }
            recurrent = None
            if model.has_recurrent_state:
                recurrent = RecurrentTrace(g, model, self.max_tokens, first, count)
            return TokenPositions(first, count, turns, start=start, recurrent=recurrent)
        # Ring caches are written outside delegates: tables are indexed there too.
        steps = g.call("aten.arange.start_step", 0, count, 1, None, None, None, False, dims=(count,), dtype=DType.INT64)
        places = g.add(first, steps)  # (S,)
        rings = {(layer.rows, layer.window): self._ring(layer, places) for layer in model.layers if layer.rows}
        turns = {
            name: (g.index_select(cosines, places), g.index_select(sines, places))
            for name, (cosines, sines) in tables.items()
        }
        return TokenPositions(first, count, turns, rings)

    def _rotary_constants(self, name: str) -> tuple[TracedTensor, TracedTensor]:
        cosines, sines = self.model.rotary_table(name, self.max_context)
        return constant(f"{name}_cos", cosines), constant(f"{name}_sin", sines)

    def _start(self, positions: TokenPositions) -> TracedInt:
        if positions.start is None:
            positions.start = self.g.element(positions.first, 0, self.max_context - 1)
        return positions.start

    # ---------------------------------------------------------------- ring caches

    def _ring(self, layer: LayerSpec, places: TracedTensor) -> RingRows:
        """Record the rows of a call's tokens, and how far each of them attends."""
        rows, window = layer.rows or 0, layer.window or self.max_context
        every = np.arange(self.max_context)
        tables = {
            "place": (every % rows).astype("<f4")[:, None],
            "back": np.minimum(every, window - 1).astype("<f4")[:, None],
            "index": (every % rows).astype("<i8"),
        }
        name = f"{rows} rows of {window}"
        place, back, index = (
            self.g.index_select(constant(f"{name}: {key}", table), places) for key, table in tables.items()
        )
        return RingRows(layer, index, place, back)

    def _mask(self, ring: RingRows) -> TracedTensor:
        """Return what is added to scores, (S, R): 0 for the rows that a token attends to."""
        if ring.mask is None:
            g, rows = self.g, ring.layer.rows or 0
            row = g.packed(constant(f"{rows} rows", np.arange(rows, dtype="<f4")[None]))  # (1, R)
            ahead = g.sub(ring.place, row)  # (S, R)
            whole = g.scaled(g.clamp(g.unary("neg", ahead), 0, 1), rows)
            distance = g.add(ahead, whole)  # positions from the row's token to the token
            ring.mask = g.scaled(g.clamp(g.sub(ring.back, distance), None, 0), HIDDEN)
        return ring.mask

    def _ring_attention(
        self, q: TracedTensor, rows: KeysAndValues | None, number: int, positions: TokenPositions
    ) -> TracedTensor:
        """Record attention to the rows of the window by plain ops, over a ring of keys and values, heads first."""
        g, model, layer = self.g, self.model, self.model.layers[number]
        ring = positions.rings[layer.rows or 0, layer.window]
        if layer.rope is not None:
            q = self._rotated(q, layer.rope, positions)
            rows = None if rows is None else (self._rotated(rows[0], layer.rope, positions), rows[1])
        if rows is not None:
            self.write(rows, number, positions)
        caches = self._written[number if layer.shares is None else layer.shares]
        heads, keys, width = model.n_heads, model.n_kv_heads, model.head_width(number)
        count, held = positions.count, layer.rows or 0
        queries = g.permute(q, (0, 2, 1, 3))  # (1, H, S, D)
        mask = self._mask(ring)
        together = count if heads == keys else g.times(heads // keys, count)
        k_rows, v_rows = (g.select(cache, 0, 0) for cache in caches)  # (K, R, D)
        scores = g.bmm(g.view(queries, (keys, together, width)), g.permute(k_rows, (0, 2, 1)))  # (K, H / K * S, R)
        scores = g.capped(g.scaled(scores, 1 / math.sqrt(width)), model.attention_cap)
        scores = g.add(g.view(scores, (heads, count, held)), mask)
        if model.sinks:
            sinks = g.packed(g.parameter(f"layers.{number}.attention.sinks", shape=(heads, 1, 1)))
            beside = g.expand(sinks, (heads, count, 1))
            weights = g.slice(g.softmax(g.cat([scores, beside], -1, held + 1)), 2, 0, held, held)
        else:
            weights = g.softmax(scores)
        mixed = g.bmm(g.view(weights, (keys, together, held)), v_rows)
        return g.permute(g.view(mixed, (1, heads, count, width)), (0, 2, 1, 3))  # (1, S, H, D)

    def write(self, rows: KeysAndValues, number: int, positions: TokenPositions) -> None:
        """Record the write of new keys and values (1, S, K, D) into the rings of a layer."""
        g, caches, layer = self.g, [], self.model.layers[number]
        ring = positions.rings[layer.rows or 0, layer.window]
        for new in [g.permute(each, (0, 2, 1, 3)) for each in rows]:  # (1, K, S, D)
            _, heads, _, width = new.bounds
            state = TracedTensor(DType.FLOAT32, (1, heads, layer.rows or 0, width), state=True)
            caches.append(g.index_put(state, ring.index, 2, new))
            self._assignments.append((state, caches[-1]))
        self.new_rows[number], self._written[number] = rows, caches

    def _rotated(self, x: TracedTensor, rope: str, positions: TokenPositions) -> TracedTensor:
        """Record the rotation of pairs of neighbors, (1, S, H, D)."""
        g, count = self.g, positions.count
        _, _, heads, width = x.dims
        if rope not in positions.wide_turns:
            cosines, sines = positions.turns[rope]
            half = cosines.dims[1]
            positions.wide_turns[rope] = g.view(cosines, (1, count, 1, half)), g.view(sines, (1, count, 1, half))
        cosines, sines = positions.wide_turns[rope]
        pairs = g.view(x, (1, count, heads, -1, 2))  # (1, S, H, D / 2, 2)
        a, b = (g.squeeze(g.slice(pairs, 4, side, side + 1, 1), 4) for side in (0, 1))
        turned = g.sub(g.mul(a, cosines), g.mul(b, sines)), g.add(g.mul(a, sines), g.mul(b, cosines))
        joined = g.cat([g.unsqueeze(each, 4) for each in turned], -1, 2)
        return g.view(joined, (1, count, heads, width))
