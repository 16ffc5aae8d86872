"""The models as ONNX graphs, with the fused operators that ONNX Runtime's own model builders use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..models import Cache, Ops, forward
from ..problems import Array, Problem
from ..reference import GROUP, rotation

CONTRIB = "com.microsoft"
OPSET = 20
ONNX_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}


def to_onnx(problem: Problem, feeds: Mapping[str, Array], fused: bool) -> onnx.ModelProto:
    """Return the problem's model for inputs such as `feeds`; with a cache, new keys and values are outputs too."""
    ops = OnnxOps(problem.weights, fused)
    named = {name: ops.values(name, array) for name, array in feeds.items()}
    output = forward(ops, problem, named)
    graph = helper.make_graph(
        ops.nodes,
        problem.kind,
        ops.inputs,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (output, *ops.outputs)],
        ops.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class OnnxOps(Ops):
    """Values are names of the graph under construction. `fused` takes one operator for attention."""

    def __init__(self, weights: Mapping[str, Array], fused: bool) -> None:
        super().__init__(weights)
        self._fused = fused
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[str] = []
        self.initializers: list[onnx.TensorProto] = []
        self._known: set[str] = set()

    def values(self, name: str, like: Array) -> str:
        dtype = ONNX_TYPES[like.dtype.name]
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(like.shape)))
        return name

    def node(self, op: str, inputs: Sequence[str], domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{op}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def value(self, name: str, array: Array) -> str:
        """Return a constant, stored once."""
        if name not in self._known:
            self._known.add(name)
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def constant(self, name: str) -> str:
        return self.value(name, self.weights[name])

    def shape(self, *dims: int) -> str:
        return self.value("shape_" + "_".join(map(str, dims)), np.array(dims, np.int64))

    def reshape(self, x: str, *dims: int) -> str:
        return str(self.node("Reshape", [x, self.shape(*dims)]))

    def add(self, x: str, y: str) -> str:
        return str(self.node("Add", [x, y]))

    def mul(self, x: str, y: str) -> str:
        return str(self.node("Mul", [x, y]))

    def relu(self, x: str) -> str:
        return str(self.node("Relu", [x]))

    def gelu(self, x: str) -> str:
        return str(self.node("Gelu", [x], CONTRIB))

    def silu(self, x: str) -> str:
        return str(self.node("Mul", [x, self.node("Sigmoid", [x])]))

    def embedding(self, ids: str, name: str) -> str:
        return str(self.node("Gather", [self.constant(name), ids]))

    def linear(self, x: str, name: str) -> str:
        if self.has(f"{name}codes"):
            return self._linear_q4(x, name)
        weight = self.value(f"{name}transposed", self.weights[f"{name}weight"].T)
        y = str(self.node("MatMul", [x, weight]))
        return self.add(y, self.constant(f"{name}bias")) if self.has(f"{name}bias") else y

    def _linear_q4(self, x: str, name: str) -> str:
        codes, scales = self.weights[f"{name}codes"], self.weights[f"{name}scales"]
        N, K = codes.shape
        packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).reshape(N, K // GROUP, GROUP // 2)
        inputs = [x, self.value(f"{name}packed", packed), self.value(f"{name}scales", scales.ravel())]
        return str(self.node("MatMulNBits", inputs, CONTRIB, K=K, N=N, bits=4, block_size=GROUP))

    def layer_norm(self, x: str, name: str, eps: float) -> str:
        inputs = [x, self.constant(f"{name}weight"), self.constant(f"{name}bias")]
        return str(self.node("LayerNormalization", inputs, epsilon=eps, axis=-1))

    def rms_norm(self, x: str, name: str, eps: float) -> str:
        return str(self.node("SimplifiedLayerNormalization", [x, self.constant(f"{name}weight")], epsilon=eps, axis=-1))

    def attention(self, q: str, k: str, v: str, mask: str, batch: int, heads: int) -> str:
        columns = len(self.weights["0.q.bias"])
        bias, width = self._bias(mask, batch), columns // heads
        if self._fused:
            split = [self.reshape(x, batch, -1, columns) for x in (q, k, v)]  # (B, T, C)
            merged = self.node("MultiHeadAttention", [*split, "", "", bias], CONTRIB, num_heads=heads)
            return self.reshape(merged, -1, columns)
        split = [self.reshape(x, batch, -1, heads, width) for x in (q, k, v)]  # (B, T, H, D)
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        rows, keys, values = (self.node("Transpose", [x], perm=p) for x, p in zip(split, orders, strict=True))
        scores = self.mul(self.node("MatMul", [rows, keys]), self.value("scale", np.full(1, width**-0.5, np.float32)))
        mixed = self.node("MatMul", [self.node("Softmax", [self.add(scores, bias)], axis=-1), values])  # (B, H, T, D)
        return self.reshape(self.node("Transpose", [mixed], perm=[0, 2, 1, 3]), -1, columns)

    def _bias(self, mask: str, batch: int) -> str:
        """0 for tokens that count and a large negative number for the others, (B, 1, T, T); the same in every layer."""
        if "bias" not in self._known:
            self._known.add("bias")
            lost = self.node("Sub", [self.value("one", np.ones(1, np.float32)), mask])
            lowest = self.mul(lost, self.value("lowest", np.full(1, -1e30, np.float32)))
            tokens = len(self.weights["places"]) // batch
            row = self.reshape(lowest, batch, 1, 1, tokens)
            self._bias_name = str(self.node("Expand", [row, self.shape(batch, 1, tokens, tokens)]))
        return self._bias_name

    def cached_attention(self, q: str, k: str, v: str, layer: int, cache: Cache) -> str:
        cos, sin = rotation(0, cache.past + cache.tokens, cache.width, cache.theta)
        tables = [self.value("cos", cos), self.value("sin", sin)]
        attend = self._fused_attention if self._fused else self._plain_attention
        y, keys, values = attend([self.reshape(x, 1, cache.tokens, -1) for x in (q, k, v)], layer, cache, tables)
        self.outputs += [keys, values]
        return self.reshape(y, cache.tokens, cache.heads * cache.width)

    def _fused_attention(self, qkv: list[str], layer: int, cache: Cache, tables: list[str]) -> list[str]:
        ends = [self.value("last", np.array([cache.past + cache.tokens - 1], np.int32))]
        ends += [self.value("total", np.array([cache.past + cache.tokens], np.int32))]
        heads = {"num_heads": cache.heads, "kv_num_heads": cache.kv_heads, "do_rotary": 1, "rotary_interleaved": 1}
        inputs = [*qkv, f"key_{layer}", f"value_{layer}", *ends, *tables]
        outputs: list[str] = self.node("GroupQueryAttention", inputs, CONTRIB, outputs=3, **heads)
        return outputs

    def _plain_attention(self, qkv: list[str], layer: int, cache: Cache, tables: list[str]) -> list[str]:
        """The same in small operators."""
        start = self.value("start", np.array([cache.past], np.int64))
        shared, total = cache.heads // cache.kv_heads, cache.past + cache.tokens

        def turned(x: str, heads: int) -> str:
            return str(self.node("RotaryEmbedding", [x, start, *tables], CONTRIB, num_heads=heads, interleaved=1))

        def heads_first(x: str, heads: int) -> str:
            split = self.reshape(x, 1, cache.tokens, heads, cache.width)
            return str(self.node("Transpose", [split], perm=[0, 2, 1, 3]))  # (1, H, T, D)

        q = heads_first(turned(qkv[0], cache.heads), cache.heads)
        new = [heads_first(turned(qkv[1], cache.kv_heads), cache.kv_heads), heads_first(qkv[2], cache.kv_heads)]
        if cache.past:
            before = (f"key_{layer}", f"value_{layer}")
            new = [self.node("Concat", [old, x], axis=2) for old, x in zip(before, new, strict=True)]
        k, v = (self.reshape(x, cache.kv_heads, 1, total, cache.width) for x in new)
        grouped = self.reshape(q, cache.kv_heads, shared, cache.tokens, cache.width)
        scores = self.node("MatMul", [grouped, self.node("Transpose", [k], perm=[0, 1, 3, 2])])  # (KV, G, T, P + T)
        scaled = self.mul(scores, self.value("scale", np.full(1, cache.width**-0.5, np.float32)))
        ahead = np.arange(total)[None] > cache.past + np.arange(cache.tokens)[:, None]
        weights = self.node("Softmax", [self.add(scaled, self.value("ahead", np.float32(-1e30) * ahead))], axis=-1)
        mixed = self.reshape(self.node("MatMul", [weights, v]), cache.heads, cache.tokens, cache.width)
        return [self.node("Transpose", [mixed], perm=[1, 0, 2]), *new]

    def mean(self, x: str, mask: str, batch: int) -> str:
        columns = len(self.weights["0.q.bias"])
        kept = self.reshape(mask, batch, -1, 1)
        one = self.value("axis_1", np.array([1], np.int64))
        total = self.node("ReduceSum", [self.mul(self.reshape(x, batch, -1, columns), kept), one], keepdims=0)
        means = self.node("Div", [total, self.node("ReduceSum", [kept, one], keepdims=0)])
        length = self.node("Sqrt", [self.node("ReduceSum", [self.mul(means, means), one], keepdims=1)])
        return str(self.node("Div", [means, length]))

    def last(self, x: str) -> str:
        ends = [
            self.value(name, np.array([n], np.int64)) for name, n in (("minus_1", -1), ("end", 2**31 - 1), ("zero", 0))
        ]
        return str(self.node("Slice", [x, *ends]))
