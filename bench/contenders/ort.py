"""ONNX Runtime with its WebGPU execution provider."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from ..problems import Array, Problem
from ..protocol import Prepared, RefusedError, serve
from .onnx_ops import to_onnx

PROVIDER = "WebGpuExecutionProvider"
RIGHT = 1e-3
KINDS = ("add", "linear", "q4_linear", "mlp", "chain", "minilm", "llama")


class OnnxRuntime:
    def __init__(self) -> None:
        if PROVIDER not in onnxruntime.get_available_providers():
            raise RefusedError(f"this onnxruntime has no {PROVIDER}")
        self.about = {"version": onnxruntime.__version__, "onnx": onnx.__version__}

    def prepare(self, row: str, problem: Problem) -> Prepared:
        if problem.kind not in KINDS:
            raise RefusedError("a unit of the bare engine only")
        prepared = build(problem, fused=True)
        error = problem.error(list(prepared.run()))
        if problem.kind in ("llama", "minilm") and error > RIGHT:
            note = f"its fused attention is off by {error:.0%} here: small operators instead"
            plain = build(problem, fused=False)
            return Prepared(plain.run, {**plain.about, "note": note})
        return prepared


def build(problem: Problem, fused: bool) -> Prepared:
    feeds = feeds_of(problem)
    with tempfile.TemporaryDirectory(prefix="bench-onnx-") as folder:
        model = Path(folder) / "model.onnx"
        onnx.save(to_onnx(problem, feeds, fused), model, save_as_external_data=True, location="model.data")
        on_gpu, on_cpu = where_nodes_run(model, feeds)
        session = open_session(model)
    if not on_gpu:
        raise RefusedError("it fell back to the CPU: no node ran on WebGPU")
    about: dict[str, Any] = {"nodes": on_gpu}
    if on_cpu:
        about["note"] = f"{', '.join(sorted(on_cpu))} on the CPU"
    return Prepared(lambda: session.run(None, feeds)[:1], about)


def feeds_of(problem: Problem) -> dict[str, Array]:
    """The graph's inputs: token ids as one row, and a decoder's keys and values by layer, heads first."""
    feeds = {name: array for name, array in problem.inputs.items() if name in ("a", "b", "x", "mask")}
    if "ids" in problem.inputs:
        feeds["ids"] = problem.inputs["ids"].ravel()
    if problem.kind == "llama":
        empty = np.zeros((1, problem.size("kv_heads"), 0, problem.size("width")), np.float32)
        for layer in range(problem.size("layers")):
            for name in ("key", "value"):
                before = problem.inputs.get(f"{name}s")  # (layers, P, KV, D)
                past = empty if before is None else np.ascontiguousarray(before[layer].transpose(1, 0, 2)[None])
                feeds[f"{name}_{layer}"] = past
    return feeds


def open_session(model: Path, profile: Path | None = None) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return onnxruntime.InferenceSession(model, options, providers=[PROVIDER, "CPUExecutionProvider"])


def where_nodes_run(model: Path, feeds: dict[str, Array]) -> tuple[int, set[str]]:
    """How many nodes run on the GPU, and which kinds on the CPU: the runtime moves nodes there without a word."""
    session = open_session(model, model.with_name("profile"))
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    nodes = [event["args"] for event in events if event.get("cat") == "Node" and "provider" in event.get("args", {})]
    on_cpu = {node["op_name"] for node in nodes if node["provider"] != PROVIDER}
    return sum(node["provider"] == PROVIDER for node in nodes), on_cpu


if __name__ == "__main__":
    serve(OnnxRuntime)
