"""A row's model as an ONNX file for a page: `PYTHON -m bench.page.onnx_models PROBLEM FOLDER`.

Runs in the environment that has the package `onnx`, see `python -m bench.setup`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from ..contenders.onnx_ops import CONTRIB, OPSET, OnnxOps
from ..models import Cache, forward
from ..problems import Array, Problem
from ..reference import rotation


class PageOps(OnnxOps):
    """Whole prompts take small operators: the fused attention of many rows is wrong on SwiftShader. A token after
    others takes the fused one, which is right; its cache grows, and how long it is comes with every call."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.weights, fused=False)
        self.context = int(problem.sizes.get("context", 0))

    def declare(self, name: str, dtype: int, dims: list[int | str]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def cached_attention(self, q: str, k: str, v: str, layer: int, cache: Cache) -> str:
        cos, sin = rotation(0, self.context, cache.width, cache.theta)
        tables = [self.value("cos", cos), self.value("sin", sin)]
        qkv = [self.reshape(x, 1, cache.tokens, -1) for x in (q, k, v)]
        attend = self._token_attention if cache.past else self._plain_attention
        attended, *new = attend(qkv, layer, cache, tables)
        for name, value in zip(("key", "value"), new, strict=True):
            self.nodes.append(helper.make_node("Identity", [value], [f"new_{name}_{layer}"]))
            self.outputs.append(f"new_{name}_{layer}")
        return self.reshape(attended, cache.tokens, cache.heads * cache.width)

    def _token_attention(self, qkv: list[str], layer: int, cache: Cache, tables: list[str]) -> list[str]:
        heads = {"num_heads": cache.heads, "kv_num_heads": cache.kv_heads, "do_rotary": 1, "rotary_interleaved": 1}
        inputs = [*qkv, f"key_{layer}", f"value_{layer}", "last", "total", *tables]
        outputs: list[str] = self.node("GroupQueryAttention", inputs, CONTRIB, outputs=3, **heads)
        return outputs


def model(problem: Problem) -> onnx.ModelProto:
    """Tokens and a mask are inputs, and for a token after others their keys and values."""
    ops, feeds = PageOps(problem), inputs(problem)
    for name, array in feeds.items():
        dims: list[int | str] = list(array.shape)
        if array.ndim == 4:
            dims[2] = "past"
        ops.declare(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)
    output = forward(ops, problem, {name: name for name in feeds})
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (output, *ops.outputs)]
    graph = helper.make_graph(ops.nodes, problem.kind, ops.inputs, results, ops.initializers)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def inputs(problem: Problem) -> dict[str, Array]:
    """32-bit tokens, as its kernels want them."""
    feeds = {"ids": problem.inputs["ids"].ravel().astype(np.int32)}
    if "mask" in problem.inputs:
        feeds["mask"] = problem.inputs["mask"].astype(np.float32)
    if "keys" in problem.inputs:
        past = problem.size("past")
        feeds |= {"last": np.array([past], np.int32), "total": np.array([past + 1], np.int32)}
        for layer in range(problem.size("layers")):
            for name in ("key", "value"):
                before = problem.inputs[f"{name}s"][layer]  # (P, KV, D)
                feeds[f"{name}_{layer}"] = np.ascontiguousarray(before.transpose(1, 0, 2)[None])
    return feeds


def write(problem: Problem, folder: Path) -> None:
    result = model(problem)
    onnx.save(result, folder / "model.onnx", save_as_external_data=True, location="model.data")
    feeds = inputs(problem)
    for name, array in feeds.items():
        (folder / f"{name}.bin").write_bytes(array.tobytes())
    about = {
        "inputs": {name: {"dtype": array.dtype.name, "dims": array.shape} for name, array in feeds.items()},
        "output": result.graph.output[0].name,
        "kept": [value.name for value in result.graph.output[1:]],
    }
    (folder / "about.json").write_text(json.dumps(about))


if __name__ == "__main__":
    write(Problem.read(Path(sys.argv[1])), Path(sys.argv[2]))
