"""The decoders of `webpte bench --report`: their stored tokens are NumPy's, by a margin above any rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webpte.measure.bench_model import (
    CONTEXT_TOKENS,
    DECODERS,
    EPSILON,
    GROUP_SIZE,
    HEAD_WIDTH,
    MAX_PREFILL_TOKENS,
    ROTARY_BASE,
    VOCABULARY,
    RandomDecoder,
    WeightStream,
    decoder_graph,
    prompt,
    stored_answers,
)

Array = np.ndarray[Any, Any]
MIN_MARGIN = 0.004  # between the two largest logits, in standard deviations; kernels differ from NumPy by 1e-5 of them


def dequantized(codes: Array, scales: Array) -> Array:
    values = np.stack((codes & 15, codes >> 4), -1).reshape(len(codes), -1).astype(np.float32) - 8
    return values * np.repeat(scales.T, GROUP_SIZE, axis=1)


def normalized(x: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)


def rotated(x: Array) -> Array:
    """Rotate pairs of neighbors of x, (S, H, D)."""
    angles = np.outer(np.arange(len(x)), ROTARY_BASE ** (-np.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH))[:, None]
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack((pairs.real, pairs.imag), -1).reshape(x.shape)


def attention(query: Array, key: Array, value: Array) -> Array:
    """Causal attention of (S, H, D) over keys and values of fewer heads."""
    repeats = query.shape[1] // key.shape[1]
    q, k, v = rotated(query), np.repeat(rotated(key), repeats, 1), np.repeat(value, repeats, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD_WIDTH)
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)


def numpy_logits(decoder: RandomDecoder, tokens: list[int]) -> Array:
    """Return the logits after every token, (S, V)."""
    stream, seq = WeightStream(decoder), len(tokens)

    def linear(x: Array, columns: int) -> Array:
        return x @ dequantized(*stream.matrix(columns, x.shape[-1])).T

    x = dequantized(*stream.matrix(VOCABULARY, decoder.width))[tokens].astype(np.float64) * np.sqrt(decoder.width)
    for _ in range(decoder.layers):
        y = normalized(x)
        heads = [decoder.heads, decoder.kv_heads, decoder.kv_heads]
        parts = [linear(y, count * HEAD_WIDTH).reshape(seq, count, HEAD_WIDTH) for count in heads]
        x = x + linear(attention(*parts).reshape(seq, -1), decoder.width)
        y = normalized(x)
        gate, up = linear(y, decoder.hidden), linear(y, decoder.hidden)
        x = x + linear(gate / (1 + np.exp(-gate)) * up, decoder.width)
    return linear(normalized(x), VOCABULARY)


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: str(decoder.width))
def test_stored_tokens_equal_numpy(decoder):
    answer = stored_answers()[decoder.width]
    assert answer["prompt"] == prompt(decoder, len(answer["prompt"]))
    assert len(set(answer["tokens"])) == len(answer["tokens"])  # a decoder that repeats itself tests little
    logits = numpy_logits(decoder, answer["prompt"] + answer["tokens"][:-1])[len(answer["prompt"]) - 1 :]
    assert logits.argmax(-1).tolist() == answer["tokens"]
    second, first = np.partition(logits, -2, axis=-1)[:, -2:].T
    margin = ((first - second) / logits.std(-1)).min()
    assert margin > MIN_MARGIN, margin


def test_graph_has_the_shape_of_an_exported_decoder():
    decoder = DECODERS[0]
    graph = decoder_graph(decoder)
    names = [call.name for call in graph.calls]
    assert names.count("et_vk.linear_q4gsw.default") == len([*decoder.linears()]) == 7 * decoder.layers + 1
    assert names.count("sdpa_with_kv_cache.default") == decoder.layers
    assert graph.tensor(graph.inputs[0]).dims == (1, MAX_PREFILL_TOKENS)
    assert max(len(answer["prompt"]) + len(answer["tokens"]) for answer in stored_answers().values()) < CONTEXT_TOKENS
