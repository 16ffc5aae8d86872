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
        feeds, note = feeds_of(problem), None
        with tempfile.TemporaryDirectory(prefix="bench-onnx-") as folder:
            model = Path(folder) / "model.onnx"
            write(problem, feeds, model, fused=True)
            tried = Trial(model, feeds)
            error = problem.error(tried.outputs)
            if problem.kind in ("llama", "minilm") and error > RIGHT:
                note = f"its fused attention is off by {error:.0%} here: small operators instead"
                write(problem, feeds, model, fused=False)
                tried = Trial(model, feeds)
            session = open_session(model)
        if not tried.on_gpu:
            raise RefusedError("it fell back to the CPU: no node ran on WebGPU")
        if tried.on_cpu:
            note = "; ".join(filter(None, [note, f"{', '.join(sorted(tried.on_cpu))} on the CPU"]))
        about = {"nodes": tried.on_gpu, **({"note": note} if note else {})}
        return Prepared(lambda: session.run(None, feeds)[:1], about)


def write(problem: Problem, feeds: dict[str, Array], path: Path, fused: bool) -> None:
    for old in path.parent.glob("*"):
        old.unlink()
    onnx.save(to_onnx(problem, feeds, fused), path, save_as_external_data=True, location="model.data")


def feeds_of(problem: Problem) -> dict[str, Array]:
    """Return the graph's inputs: token ids as one row, and a decoder's keys and values by layer, heads first."""
    feeds = {name: array for name, array in problem.inputs.items() if name in ("a", "b", "x")}
    if "ids" in problem.inputs:
        feeds["ids"] = problem.inputs["ids"].ravel()
    if "mask" in problem.inputs:
        feeds["mask"] = problem.inputs["mask"].astype(np.float32)  # the cast of an int64 would run on the CPU
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


class Trial:
    """One profiled run: its result, how many nodes ran on the GPU, and which kinds the runtime moved to the CPU."""

    def __init__(self, model: Path, feeds: dict[str, Array]) -> None:
        session = open_session(model, model.with_name("profile"))
        self.outputs: list[Array] = session.run(None, feeds)[:1]
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        nodes = [
            event["args"] for event in events if event.get("cat") == "Node" and "provider" in event.get("args", {})
        ]
        self.on_gpu = sum(node["provider"] == PROVIDER for node in nodes)
        self.on_cpu = {node["op_name"] for node in nodes if node["provider"] != PROVIDER}


if __name__ == "__main__":
    serve(OnnxRuntime)
