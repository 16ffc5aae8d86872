"""LiteRT with its WebGPU accelerator. Models are converted once, in a process of their own that may import torch."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.gpu_options import GpuOptions
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
from ai_edge_litert.options import Options

from ..problems import Array, Problem
from ..protocol import Prepared, RefusedError, serve
from ..rows import cache_root

KINDS = ("add", "linear", "mlp", "chain", "minilm", "llama")
CONVERSION_SECONDS = 600
NO_GROUPS = "4-bit weights in groups, made by ai-edge-quantizer, end its GPU path with `free(): invalid size`"
HERE = Path(__file__).parent
CONVERTER = ("litert_convert.py", "../torch_ops.py", "../models.py")  # a change there converts everything again


class LiteRT:
    def __init__(self) -> None:
        self.about = {"version": version("ai-edge-litert"), "litert-torch": version("litert-torch")}

    def prepare(self, row: str, problem: Problem) -> Prepared:
        if problem.kind == "q4_linear":
            raise RefusedError(NO_GROUPS)
        if problem.kind not in KINDS:
            raise RefusedError("a unit of the bare engine only")
        if row.startswith("smollm2"):
            raise RefusedError(f"{NO_GROUPS}; in f32 its files have fixed shapes and 540 MB each")
        model = open_model(converted(row, problem))
        (signature,) = model.get_signature_list()
        names = [f"args_{i}" for i in range(len(problem.inputs) - ("prompt" in problem.inputs))]
        inputs = {name: model.create_input_buffer_by_name(signature, name) for name in names}
        outputs = {"output_0": model.create_output_buffer_by_name(signature, "output_0")}
        (size,) = (array.size for array in problem.expected)

        def run() -> list[Array]:
            for buffer, array in zip(inputs.values(), taken(problem).values(), strict=True):
                buffer.write(array)
            model.run_by_name(signature, inputs, outputs)
            return [outputs["output_0"].read(size, np.float32)]

        return Prepared(run, {"note": "f32 weights"} if problem.kind == "llama" else {}, model.close)


def taken(problem: Problem) -> dict[str, Array]:
    """Return the model's inputs: rows of the embedding (1, T, C) in place of token ids, and a mask of 32 bits."""
    inputs = {name: array for name, array in problem.inputs.items() if name != "prompt"}
    if problem.kind == "chain":
        inputs["x"] = inputs["x"][None]  # as its constants are
    if "ids" in inputs:
        inputs["ids"] = problem.weights["words.weight"][inputs["ids"].ravel()][None]
    if "mask" in inputs:
        inputs["mask"] = inputs["mask"].astype(np.int32)
    return inputs


def open_model(path: Path) -> CompiledModel:
    """On the GPU alone, in f32: with the CPU allowed, ops move there without a word."""
    options = Options(hardware_accelerators=HardwareAccelerator.GPU, gpu_options=GpuOptions(enforce_f32=True))
    model = CompiledModel.from_file(str(path), options=options)
    if not model.is_fully_accelerated():
        raise RefusedError("a part of the model would run on the CPU")
    return model


def converted(row: str, problem: Problem) -> Path:
    made_by = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in CONVERTER)).hexdigest()[:8]
    target = cache_root() / "tflite" / f"{row}-{problem.digest}-{made_by}.tflite"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="bench-litert-") as folder:
            asked = replace(problem, inputs=taken(problem))
            asked.save(Path(folder) / "problem", Path(folder) / "weights")
            command = [sys.executable, "-m", "bench.contenders.litert_convert", f"{folder}/problem", str(target)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=CONVERSION_SECONDS)
        if done.returncode:
            raise RefusedError(f"litert-torch cannot convert it: {done.stderr.strip().splitlines()[-1]}")
    return target


if __name__ == "__main__":
    serve(LiteRT)
