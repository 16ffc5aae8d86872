"""Put the weights of a quantized program into the checkpoint that it was built from, for transformers to load."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from webpte.builder.quantize import Grouped
from webpte.builder.recipe import EMBEDDINGS
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.family import Checkpoint
from webpte.checkpoints.recipe import EMBEDDING, WeightFormat
from webpte.checkpoints.weights import expert_number
from webpte.container import KernelCall, MappedFile, TensorValue, parse_program

CONVERSIONS: dict[str, Any] = {
    "factor": 1.0,
    "offset": 0.0,
    "softplus": False,
    "rates": False,
}  # of values, not of their places


def transformers_model(folder: Path, values: Mapping[str, np.ndarray]) -> Any:
    """Return the model of transformers in a folder with other weights, by the names of a program's layers."""
    from safetensors.numpy import load_file, save_file
    from transformers import AutoModelForCausalLM

    tensors, sources = load_file(folder / "model.safetensors"), {**read_checkpoint(folder).weights.sources}
    target = folder / "other-weights"
    target.mkdir()
    for file in folder.glob("*.json"):
        shutil.copy(file, target)
    # A checkpoint whose elements are their own numbers shows where each element of a parameter is stored.
    numbers = {name: np.arange(tensor.size, dtype=np.float32) for name, tensor in tensors.items()}
    numbered = {name: numbers[name].reshape(tensor.shape) for name, tensor in tensors.items()}
    save_file(numbered, target / "model.safetensors")
    places = read_checkpoint(target).weights
    places = replace(places, sources={name: replace(each, **CONVERSIONS) for name, each in places.sources.items()})
    if sources["output.weight"].stored_name == sources[f"{EMBEDDING}.weight"].stored_name:  # each has codes of its own
        config = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
        tensors["lm_head.weight"] = tensors[sources["output.weight"].stored_name].copy()
        sources["output.weight"] = replace(sources["output.weight"], stored_name="lm_head.weight")
    for layer, weight in values.items():
        source = sources[f"{layer}.weight"]
        stored = tensors[source.stored_name].reshape(-1)
        stored[places.read(f"{layer}.weight").astype(np.int64)] = (weight - source.offset) / source.factor
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager").eval()
    shutil.rmtree(target)
    return model


def round_inputs(model: Any, source: Checkpoint, program: Path) -> None:
    """Let the layers of a model round their inputs to 8 bits by token, as those in 8da4w of a program do."""
    for name, (_, kind) in quantized_weights(source, program).items():
        if kind.name == "8da4w":
            module = source.weights.sources[f"{name}.weight"].stored_name.removesuffix(".weight")
            layer = model.get_output_embeddings() if name == "output" else model.get_submodule(module)
            layer.register_forward_pre_hook(lambda _, inputs: (_rounded(inputs[0]),))


def _rounded(x: Any) -> Any:
    """Return what is left of each token (..., K) with 256 codes from its least to its largest number, and 0."""
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1.2e-7)
    zero = (-128 - (low / scale).round()).clamp(-128, 127)
    return (((x * (1 / scale)).round() + zero).clamp(-128, 127) - zero) * scale


def program_values(source: Checkpoint, program: Path) -> dict[str, np.ndarray]:
    """Return the values of the quantized layers of a program, by name."""
    return {name: codes.values() for name, (codes, _) in quantized_weights(source, program).items()}


def quantized_weights(source: Checkpoint, program: Path) -> dict[str, tuple[Grouped, WeightFormat]]:
    """Return the codes and formats of the quantized layers of a program, by name, from the constants of its file."""
    with MappedFile(program) as file:
        contents = parse_program(file)
        spans = dict(contents.named_data)
        forward = contents.methods[0]
        for call in forward.instructions:
            if isinstance(call, KernelCall) and "embedding_byte" in call.op:  # constants outside delegates
                for part, number in zip(("codes", "scales"), call.args[:2], strict=True):
                    value = forward.values[number]
                    assert isinstance(value, TensorValue) and value.data is not None
                    spans[f"{EMBEDDING}.{part}"] = value.data
        constants = {name: bytes(span.view()) for name, span in spans.items()}
    results = {}
    for parameter, weight in source.weights.sources.items():
        name = parameter.removesuffix(".weight")
        if f"{name}.codes" in constants:
            codes = np.frombuffer(constants[f"{name}.codes"], np.uint8)
            scales = np.frombuffer(constants[f"{name}.scales"], np.float32)
            results[name] = _unpacked(name, codes, scales, weight.shape, f"{name}.sums" in constants)
        stack = re.sub(r"\.experts\.\d+\.", ".experts.", name)  # the constants of all experts are one
        if stack != name and f"{stack}.codes" in constants:
            rows, columns = weight.shape
            codes = np.frombuffer(constants[f"{stack}.codes"], np.uint8).reshape(-1, rows, columns // 2)
            scales = np.frombuffer(constants[f"{stack}.scales"], np.float32).reshape(len(codes), rows, -1)
            number = expert_number(parameter)
            scales = np.ascontiguousarray(np.pad(scales[number].T, ((0, 0), (0, -rows % 4))))
            results[name] = _unpacked(name, codes[number], scales, weight.shape, by_token=False)
    return results


def _unpacked(
    name: str, codes: np.ndarray, scales: np.ndarray, shape: tuple[int, ...], by_token: bool
) -> tuple[Grouped, WeightFormat]:
    rows, columns = shape
    if codes.size == rows * columns:
        return Grouped(codes.view(np.int8).reshape(shape).copy(), scales.reshape(rows, 1).copy()), WeightFormat("8w")
    pairs = codes.reshape(rows, -1)
    values = np.stack([pairs & 15, pairs >> 4], axis=-1).astype(np.int8).reshape(shape) - np.int8(8)
    if name not in EMBEDDINGS:  # (G, N), N padded to a multiple of 4
        scales = scales.reshape(-1, -(-rows // 4) * 4)[:, :rows].T
    scales = np.ascontiguousarray(scales.reshape(rows, -1))
    return Grouped(values, scales), WeightFormat("8da4w" if by_token else "4w", columns // scales.shape[1])
