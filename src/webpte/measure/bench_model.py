"""Decoders with random 4-bit weights, for `webpte bench --report`: the graph of an exported Llama, without a file.

Weights come from the bit stream of PCG64, which NumPy promises to keep. So every machine builds the same decoder, and
its greedy tokens can be compared with stored ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..container import MappedFile, Span
from ..debug.selftest import GraphBuilder
from ..fusion.llm_rewrites import TOKEN, with_sampler
from ..graph import Bool, Constant, Double, DType, Graph, Int, SymInt, TensorSpec, ValueList
from ..llm.sampling import RowSamplingParams, pack
from ..runtime import Method
from ..typing import Array

HEAD_WIDTH = 64
VOCABULARY = 4096
CONTEXT_TOKENS = 512
MAX_PREFILL_TOKENS = 255
GROUP_SIZE = 32  # columns that share a scale
EPSILON = 1e-5
ROTARY_BASE = 10_000.0
CODE_DEVIATION = math.sqrt(17.5)  # of values from -7 to 7, with 0 twice as frequent
# Bytes of two codes, value + 8 each, without the value -8: a mean other than 0 would grow from layer to layer, until
# every token is the same.
BALANCED_CODES = np.array([(b & 15 or 8) | ((b >> 4 or 8) << 4) for b in range(256)], np.uint8)
ANSWERS_FILE = "bench_answers.json"


@dataclass(frozen=True)
class RandomDecoder:
    """The sizes of a decoder: grouped-query attention, and a gated feed-forward layer as wide as Llama 3.2 1B's."""

    width: int
    layers: int

    @property
    def heads(self) -> int:
        return self.width // HEAD_WIDTH

    @property
    def kv_heads(self) -> int:
        return self.heads // 4

    @property
    def hidden(self) -> int:
        return self.width * 11 // 4

    def linears(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, outputs and inputs of every 4-bit matrix."""
        for layer in range(self.layers):
            for name, rows, columns in (
                ("q", self.width, self.width),
                ("k", self.kv_heads * HEAD_WIDTH, self.width),
                ("v", self.kv_heads * HEAD_WIDTH, self.width),
                ("o", self.width, self.width),
                ("gate", self.hidden, self.width),
                ("up", self.hidden, self.width),
                ("down", self.width, self.hidden),
            ):
                yield f"{layer}.{name}", rows, columns
        yield "head", VOCABULARY, self.width

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of codes and scales that every step reads."""
        return sum(rows * columns // 2 + 4 * rows * columns // GROUP_SIZE for _, rows, columns in self.linears())


DECODERS = (RandomDecoder(256, 4), RandomDecoder(1024, 4), RandomDecoder(2048, 2))


class WeightStream:
    """Random weights of a decoder, in a fixed order."""

    def __init__(self, decoder: RandomDecoder) -> None:
        self._bits = np.random.PCG64(decoder.width)

    def words(self, count: int) -> Array:
        """Return 32-bit words."""
        return self._bits.random_raw(-(-count // 2)).astype("<u8").view("<u4")[:count]

    def matrix(self, rows: int, columns: int) -> tuple[Array, Array]:
        """Return the codes (rows, columns / 2) and the scales (groups, rows). Products keep the size of their input."""
        codes = BALANCED_CODES[self.words(rows * columns // 8).view(np.uint8)].reshape(rows, columns // 2)
        scales = self.words(columns // GROUP_SIZE * rows).reshape(-1, rows)
        factor = 1 / (CODE_DEVIATION * math.sqrt(columns))
        return codes, ((0.75 + scales / 2.0**33) * factor).astype(np.float32)


def prompt(decoder: RandomDecoder, count: int) -> list[int]:
    """Return random tokens."""
    return [int(word) % VOCABULARY for word in np.random.PCG64(decoder.layers).random_raw(count)]


def rotary_tables() -> tuple[Array, Array]:
    """Return cosines and sines, (CONTEXT_TOKENS, HEAD_WIDTH / 2)."""
    frequencies = ROTARY_BASE ** (-np.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    angles = np.outer(np.arange(CONTEXT_TOKENS), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class DecoderBuilder(GraphBuilder):
    """Builds the graph of a decoder, call by call as the exporter writes them."""

    def __init__(self, decoder: RandomDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self._weights = WeightStream(decoder)
        self._tokens = self.add(TensorSpec(DType.INT32, (1, MAX_PREFILL_TOKENS), DType.INT64, dynamic=True))
        self._position = self.add(TensorSpec(DType.INT32, (1,), DType.INT64))
        self._null, self._zero, self._one, self._last = (
            self.null(), self.add(Int(0)), self.add(Int(1)), self.add(Int(-1))
        )  # fmt: skip
        self._true, self._false = self.add(Bool(True)), self.add(Bool(False))
        self._group, self._epsilon = self.add(Int(GROUP_SIZE)), self.add(Double(EPSILON))

    def build(self) -> Graph:
        """Return the graph: tokens (1, S) and the position of the first to the logits (1, V) after the last."""
        seq = self.call("sym_size.int", self._tokens, self._one, out=self.add(SymInt()))
        start = self.call(
            "et_vk.select_as_symint.default", self._position, self._zero, self._zero, out=self.add(SymInt())
        )
        end = self.call("add", start, seq, out=self.add(SymInt()))
        tables = [self._rows(self._constant(table, DType.FLOAT32), start, end) for table in rotary_tables()]
        x = self._embedding()
        for _ in range(self.decoder.layers):
            x = self._plus(x, self._attention(self._norm(x), tables, seq, start))
            x = self._plus(x, self._feed_forward(self._norm(x)))
        last = self.call(
            "aten.select_copy.int", x, self._one, self._last, out=self.tensor(1, self.decoder.width)
        )  # (1, width)
        logits = self._linear(self._norm(last), VOCABULARY)
        return self.graph([self._tokens, self._position], [logits])

    def _constant(self, array: Array, dtype: DType) -> int:
        file = MappedFile.from_bytes("weights", np.ascontiguousarray(array).data.cast("B"))
        return self.add(TensorSpec(dtype, array.shape, dtype, constant=Constant(Span(file, 0, file.size), dtype, "")))

    def _rows(self, table: int, start: int, end: int) -> int:
        out = self.tensor(MAX_PREFILL_TOKENS, HEAD_WIDTH // 2)
        return self.call("aten.slice_copy.Tensor", table, self._zero, start, end, self._one, out=out)

    def _matrix(self, rows: int, columns: int) -> tuple[int, int]:
        codes, scales = self._weights.matrix(rows, columns)
        return self._constant(codes, DType.UINT8), self._constant(scales, DType.FLOAT32)

    def _embedding(self) -> int:
        """Look up the tokens in a table of 4-bit codes: scales are (V, groups)."""
        width = self.decoder.width
        codes, scales = self._weights.matrix(VOCABULARY, width)
        unit = np.ascontiguousarray(scales.T * math.sqrt(width)).astype(np.float32)
        table = self._constant(codes, DType.UINT8), self._constant(unit, DType.FLOAT32)
        name, out = "et_vk.embedding_q4gsw.default", self._hidden(width)
        return self.call(name, *table, self._group, self._tokens, self._true, out=out)

    def _hidden(self, *dims: int) -> int:
        return self.tensor(1, MAX_PREFILL_TOKENS, *dims)

    def _norm(self, x: int) -> int:
        dims = self.dims(x)
        ones = self._constant(np.ones(dims[-1], np.float32), DType.FLOAT32)
        return self.call("et_vk.rms_norm.default", x, ones, self._epsilon, out=self.tensor(*dims))

    def _plus(self, x: int, y: int) -> int:
        return self.call("aten.add.Tensor", x, y, self._one, out=self.tensor(*self.dims(x)))

    def _linear(self, x: int, columns: int) -> int:
        dims = self.dims(x)
        weight = self._matrix(columns, dims[-1])
        out = self.tensor(*dims[:-1], columns)
        return self.call("et_vk.linear_q4gsw.default", x, *weight, self._group, self._null, out=out)

    def _split(self, x: int, seq: int, heads: int) -> int:
        shape = self.add(ValueList((self._one, seq, self.add(Int(heads)), self.add(Int(HEAD_WIDTH)))))
        return self.call("aten.view_copy.default", x, shape, out=self._hidden(heads, HEAD_WIDTH))

    def _attention(self, x: int, tables: Sequence[int], seq: int, start: int) -> int:
        heads, kv_heads, width = self.decoder.heads, self.decoder.kv_heads, self.decoder.width
        query, key, value = (
            self._split(self._linear(x, count * HEAD_WIDTH), seq, count) for count in (heads, kv_heads, kv_heads)
        )
        outs = self._hidden(heads, HEAD_WIDTH), self._hidden(kv_heads, HEAD_WIDTH)
        self.add_call("et_vk.apply_rotary_emb.default", (query, key, *tables), outs)
        cache = TensorSpec(DType.FLOAT32, (1, CONTEXT_TOKENS, kv_heads, HEAD_WIDTH), DType.FLOAT32, mutable=True)
        attended = self.call(
            "sdpa_with_kv_cache.default",
            *outs,
            value,
            self.add(cache),
            self.add(cache),
            start,
            self._one,
            self._null,
            self._zero,
            self._true,
            self._null,
            out=self._hidden(heads, HEAD_WIDTH),
        )
        shape = self.add(ValueList((self._one, seq, self.add(Int(width)))))
        joined = self.call("aten.view_copy.default", attended, shape, out=self._hidden(width))
        return self._linear(joined, width)

    def _feed_forward(self, x: int) -> int:
        hidden = self.decoder.hidden
        gate, up = self._linear(x, hidden), self._linear(x, hidden)
        sigmoid = self.call("aten.sigmoid.default", gate, out=self._hidden(hidden))
        silu = self.call("aten.mul.Tensor", gate, sigmoid, out=self._hidden(hidden))
        return self._linear(self.call("aten.mul.Tensor", silu, up, out=self._hidden(hidden)), self.decoder.width)


def decoder_graph(decoder: RandomDecoder) -> Graph:
    """Return the graph of a decoder with the sampler, as `generate` runs it."""
    return with_sampler(DecoderBuilder(decoder).build())


GREEDY = pack([RowSamplingParams()])


def step_inputs(tokens: Sequence[int], position: int) -> tuple[Any, ...]:
    """Return the inputs of a decoder with the sampler."""
    return (np.array([tokens], np.int64), np.array([position], np.int64), 0, *GREEDY)


def greedy_tokens(method: Method, tokens: Sequence[int], count: int) -> list[int]:
    """Return the tokens that a decoder continues with."""
    position, generated = 0, list[int]()
    for _ in range(count):
        (result,) = method.run(step_inputs(tokens, position), outputs=(TOKEN,))
        position += len(tokens)
        tokens = [int(result[0])]
        generated += tokens
    return generated


@cache
def stored_answers() -> dict[int, dict[str, list[int]]]:
    """Return prompt and greedy tokens of every decoder, by width. A NumPy decoder of the tests confirms them."""
    text = Path(__file__).with_name(ANSWERS_FILE).read_text("ascii")
    return {int(width): answer for width, answer in json.loads(text).items()}
