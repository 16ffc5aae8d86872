"""Linear layers, embeddings and norms: the constants of their weights, and the ops that read them.

A weight is read from the checkpoint when the program is written, one at a time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..checkpoints.architecture import Experts
from ..checkpoints.recipe import EMBEDDING, MXFP4, UNQUANTIZED, WeightFormat
from ..checkpoints.weights import WeightSource
from ..container import DType, Span
from ..errors import UnsupportedError
from .ops import OpTrace, constant
from .quantize import FOUR_BITS_WITH_OFFSETS, group_sums
from .trace import Dim, TracedTensor

Array = np.ndarray[Any, Any]
_FLOAT32, _INT8 = 6, 1  # ExecuTorch's numbers of the types


class WeightArrays(Protocol):
    """The parameters of a decoder, read one at a time."""

    def read(self, name: str) -> Array:
        """Return a parameter as f32."""

    def codes(self, name: str, kind: WeightFormat) -> tuple[Array, Array]:
        """Return the codes and scales of a weight in the layout of the program's constants."""

    def offsets(self, name: str) -> tuple[Array, Array]:
        """Return the codes and scales of the offsets of a weight: (G, N) and (N,)."""


class LayerTrace(OpTrace):
    """A trace with layers. `sources` has all parameters, `formats` those of layers by name."""

    def __init__(
        self, sources: Mapping[str, WeightSource], formats: Mapping[str, WeightFormat], weights: WeightArrays
    ) -> None:
        super().__init__()
        self.shapes = {name: source.shape for name, source in sources.items()}
        # The first of parameters that have one source, such as a head that shares the weights of the embedding.
        first: dict[WeightSource, str] = {}
        self._first = {name: first.setdefault(source, name) for name, source in sources.items()}
        self._formats = formats
        self._weights = weights
        self._group_sums: dict[TracedTensor, TracedTensor] = {}

    def format(self, name: str) -> WeightFormat:
        """Return the format of a layer."""
        return self._formats.get(name, UNQUANTIZED)

    def parameter(
        self,
        name: str,
        change: Callable[[Array], Array] = lambda values: values,
        shape: tuple[int, ...] | None = None,
    ) -> TracedTensor:
        """Return a parameter as f32, changed before it is written. `shape` is that of the result if it differs."""
        name, shape = self._first[name], self.shapes[name] if shape is None else shape
        read = self._weights.read
        span = Span.computed(name, 4 * math.prod(shape), lambda: _bytes(change(read(name).astype("<f4", copy=False))))
        return TracedTensor(DType.FLOAT32, shape, name, span)

    def linear(self, x: TracedTensor, name: str, heads: int = 0) -> TracedTensor:
        """Return a linear layer of (1, S, K), (1, K) or heads (1, S, H, K / H); with `heads`, the result has heads."""
        rows, columns = self.shapes[f"{name}.weight"]
        kind = self.format(name)
        bias = self.parameter(f"{name}.bias") if f"{name}.bias" in self.shapes else None
        result: list[Dim] = [*x.dims[:2], -1, rows // heads] if heads else [*x.dims[:2], rows]
        if kind.bits == 4:
            x = self.view(x, (*x.dims[:2], -1)) if len(x.dims) == 4 else x
            out = self._linear_q4(x, name, kind, bias)
            return out if len(x.dims) == 2 else self.view(out, result)
        flat = x if len(x.dims) == 2 else self.view(x, (x.dims[1], columns))
        if kind.name == "8w":
            codes, scales = self._codes(name, kind, (rows, columns), DType.INT8, (rows,))
            out = self.call("aten._weight_int8pack_mm.default", flat, codes, scales, dims=(flat.dims[0], rows))
            if bias is not None:
                out = self.add(out, self.packed(bias))
        elif kind == UNQUANTIZED:
            weight = self.parameter(f"{name}.weight")
            out = self.call("aten.linear.default", flat, weight, bias, dims=(flat.dims[0], rows))
        else:
            raise UnsupportedError(f"{name}: the builder has no layers in {kind}", [name], code="weight_format")
        return out if len(x.dims) == 2 else self.view(out, result)

    def _linear_q4(self, x: TracedTensor, name: str, kind: WeightFormat, bias: TracedTensor | None) -> TracedTensor:
        """Return a layer with 4-bit weights. As 8da4w, its input has 8 bits, with a scale and a zero for each token."""
        tokens, (rows, columns) = x.dims[:-1], self.shapes[f"{name}.weight"]
        group = kind.group or columns
        by_group = columns // group, -(-rows // 4) * 4
        if kind.name != "8da4w":
            codes, scales = self._codes(name, kind, (rows, columns // 2), DType.UINT8, by_group)
            out = self.call("et_vk.linear_q4gsw.default", x, codes, scales, group, bias, dims=(*tokens, rows))
            return self.add(out, self._offset_product(x, name, out.dims)) if kind == FOUR_BITS_WITH_OFFSETS else out
        x_scales, x_zeros = self.call_several(
            "torchao.choose_qparams_affine.default",
            *(x, "ASYMMETRIC", (*[1] * len(tokens), columns), None, -128, 127, None, None, None, False),
            dims=(tokens, tokens),
            dtypes=(DType.FLOAT32, DType.INT8),
        )
        codes, scales, sums = self._codes(name, kind, (rows, columns // 2), DType.UINT8, by_group, by_group)
        args = (x, x_scales, x_zeros, codes, sums, scales, group, bias)
        return self.call("et_vk.linear_dq8ca_q4gsw.default", *args, dims=(*tokens, rows))

    def _offset_product(self, x: TracedTensor, name: str, dims: tuple[Dim, ...]) -> TracedTensor:
        """Return what the offsets of a layer add to its result: the sums of the groups of x times the offsets.

        Layers of one input share the sums.
        """
        rows, columns = self.shapes[f"{name}.weight"]
        group = FOUR_BITS_WITH_OFFSETS.group
        groups = columns // group
        if x not in self._group_sums:
            split = self.view(x, (x.dims[-2], groups, group))
            self._group_sums[x] = self.call("aten.sum.dim_IntList", split, (-1,), False, None, dims=split.dims[:2])
        parts: list[Part] = [("codes", DType.INT8, (groups, rows)), ("scales", DType.FLOAT32, (rows,))]
        constants = [*_constants(f"{name}.offsets", lambda: self._weights.offsets(name), parts)]
        constants.append(constant(f"{rows} zeros", np.zeros(rows, "<i4")))
        packed = [self.packed(each) for each in constants]
        options = (1, -128, 127, _INT8, None)
        offsets = self.call(
            "quantized_decomposed.dequantize_per_channel.default", *packed, *options, dims=(groups, rows)
        )
        product = self.call("aten.mm.default", self._group_sums[x], offsets, dims=(x.dims[-2], rows))
        return product if len(x.dims) == 2 else self.view(product, dims)

    def mixture(self, x: TracedTensor, name: str, experts: Experts, activation: str) -> TracedTensor:
        """Return the weighted sum of the experts that the router of a layer chooses for each token."""
        logits = self.linear(x, f"{name}.router")
        bias = self.packed(self.parameter(f"{name}.router.expert_bias")) if experts.biased else None
        weights: list[TracedTensor | None] = []
        for part in ("w1", "w3", "w2"):
            weights += self._expert_weights(name, part, experts.count)
        groups = [self.format(f"{name}.experts.0.{part}").group for part in ("w1", "w2")]
        numbers = (experts.chosen, experts.scoring, experts.normalized, float(experts.eps), float(experts.factor))
        options = (activation, "mxfp4" if self.format(f"{name}.experts.0.w1") == MXFP4 else "int4")
        biases = self._expert_biases(name, experts) if experts.linear_bias else ()
        args = (x, logits, bias, *weights, *groups, *numbers, *options, *biases)
        return self.call("webpte.experts", *args, dims=x.dims)

    def _expert_biases(self, name: str, experts: Experts) -> list[TracedTensor]:
        """Return the biases of gate and up of all experts, (E, 2, N), and of down, (E, K)."""

        def stacked(number: int, part: str) -> Array:
            return self._weights.read(f"{name}.experts.{number}.{part}.bias")

        def compute() -> tuple[Array, ...]:
            every = range(experts.count)
            inputs = np.stack([np.stack([stacked(number, part) for part in ("w1", "w3")]) for number in every])
            return inputs, np.stack([stacked(number, "w2") for number in every])

        (rows,) = self.shapes[f"{name}.experts.0.w2.bias"]
        parts: list[Part] = [("input_bias", DType.FLOAT32, (experts.count, 2, experts.hidden_dim))]
        return _constants(f"{name}.experts", compute, [*parts, ("output_bias", DType.FLOAT32, (experts.count, rows))])

    def _expert_weights(self, name: str, part: str, count: int) -> list[TracedTensor | None]:
        """Return a matrix of all experts as constants, (E, N, K) or codes (E, N, K / 2) and scales (E, N, K / group).

        To quantize them, the floats of one expert are in memory at once.
        """
        layers = [f"{name}.experts.{number}.{part}" for number in range(count)]
        rows, columns = self.shapes[f"{layers[0]}.weight"]
        kind, stack = self.format(layers[0]), f"{name}.experts.{part}"
        if kind == UNQUANTIZED:

            def floats() -> tuple[Array, ...]:
                return (np.stack([self._weights.read(f"{layer}.weight") for layer in layers]),)

            return [*_constants(stack, floats, [("weight", DType.FLOAT32, (count, rows, columns))]), None]
        groups, scale_type = columns // kind.group, DType.UINT8 if kind == MXFP4 else DType.FLOAT32

        def quantized() -> tuple[Array, ...]:
            codes = np.empty((count, rows, columns // 2), np.uint8)
            scales = np.empty((count, rows, groups), scale_type.numpy)
            for number, layer in enumerate(layers):
                codes[number], by_group = self._weights.codes(layer, kind)
                scales[number] = by_group.T[:rows]
            return codes, scales

        parts: list[Part] = [("codes", DType.UINT8, (count, rows, columns // 2))]
        return [*_constants(stack, quantized, [*parts, ("scales", scale_type, (count, rows, groups))])]

    def embedding(self, tokens: TracedTensor, name: str = EMBEDDING) -> TracedTensor:
        """Return the rows (1, S, N) of tokens (1, S)."""
        rows, columns = self.shapes[f"{name}.weight"]
        dims = (*tokens.dims, columns)
        kind = self.format(name)
        if kind == UNQUANTIZED:
            table = self.parameter(f"{name}.weight")
            return self.call("aten.embedding.default", table, tokens, -1, False, False, dims=dims)
        if kind.name == "8w":
            codes, scales = self._codes(name, kind, (rows, columns), DType.INT8, (rows,))
            out = TracedTensor(DType.FLOAT32, dims)
            op = "quantized_decomposed::embedding_byte.dtype_out"
            return self.kernel(op, codes, scales, None, -128, 127, tokens, _FLOAT32, out=out)
        codes, scales = self._codes(name, kind, (rows, columns // 2), DType.UINT8, (rows, columns // kind.group))
        # The last argument says that the first of two codes is in the lower half of a byte, as in linear layers.
        return self.call("et_vk.embedding_q4gsw.default", codes, scales, kind.group, tokens, True, dims=dims)

    def norm(self, x: TracedTensor, name: str, eps: float) -> TracedTensor:
        return self.rms_norm(x, self.parameter(f"{name}.weight"), eps)

    def _codes(
        self,
        name: str,
        kind: WeightFormat,
        shape: tuple[int, int],
        dtype: DType,
        scales_shape: tuple[int, ...],
        sums_shape: tuple[int, ...] | None = None,
    ) -> list[TracedTensor]:
        """Return the codes and scales of a weight as constants, and the sums of its groups if they have a shape."""

        def compute() -> tuple[Array, ...]:
            codes, scales = self._weights.codes(name, kind)
            return (codes, scales) if sums_shape is None else (codes, scales, group_sums(codes, scales))

        parts: list[Part] = [("codes", dtype, shape), ("scales", DType.FLOAT32, scales_shape)]
        parts += [] if sums_shape is None else [("sums", DType.INT32, sums_shape)]
        return _constants(name, compute, parts)


Part = tuple[str, DType, tuple[int, ...]]  # the name, type and dims of a constant


def _constants(name: str, compute: Callable[[], tuple[Array, ...]], parts: Sequence[Part]) -> list[TracedTensor]:
    """Return constants that are computed at once."""
    together = _Together(compute)
    tensors = []
    for number, (part, dtype, dims) in enumerate(parts):
        size = dtype.itemsize * math.prod(dims)
        span = Span.computed(f"{name}.{part}", size, functools.partial(together.view, number))
        tensors.append(TracedTensor(dtype, dims, f"{name}.{part}", span))
    return tensors


class _Together:
    """Arrays that are computed at once: when the first is viewed, the others are kept until their own view."""

    def __init__(self, compute: Callable[[], tuple[Array, ...]]) -> None:
        self._compute = compute
        self._kept: dict[int, Array] = {}

    def view(self, number: int) -> memoryview:
        if number not in self._kept:
            self._kept = dict(enumerate(self._compute()))
        return _bytes(self._kept.pop(number))


def _bytes(values: Array) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B")
