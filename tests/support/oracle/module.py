"""Build the torch module of a checkpoint: with its weights, or with those of a program that the builder wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from webpte.builder.context import ProgramSizes
from webpte.builder.llm import decoder_metadata
from webpte.builder.quantize import Grouped
from webpte.builder.recipe import EMBEDDINGS
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.family import Checkpoint
from webpte.checkpoints.recipe import EMBEDDING, WeightFormat
from webpte.checkpoints.weights import expert_number
from webpte.container import KernelCall, MappedFile, TensorValue, parse_program
from webpte.errors import FormatError
from webpte.export import lower
from webpte.export.quantize import replace_layer
from webpte.suppress_output import suppress_logs

from .decoder import Decoder
from .recurrent import ConvDecoder, DeltaDecoder


def build_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Return the module of a checkpoint with its weights, as f32."""
    module = empty_module(source, max_context, max_tokens)
    for name, parameter in list(module.named_parameters()):
        values = source.weights.read(name)
        weight = torch.tensor(-np.exp(values) if name.endswith(".A_log") else values)  # as in the program
        if weight.shape != parameter.shape:
            raise FormatError(
                argument=name,
                expected=f"the shape {list(parameter.shape)}",
                got=list(weight.shape),
                code="tensor_shape",
            )
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, torch.nn.Parameter(weight, requires_grad=False))
    return module


def empty_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Return the module of a checkpoint with parameters on the meta device."""
    model = source.architecture
    with suppress_logs(), torch.device("meta"):
        if model.query_gate:
            module: Decoder = DeltaDecoder(model, max_context, max_tokens)
        elif any(layer.taps for layer in model.layers):
            module = ConvDecoder(model, max_context)
        else:
            module = Decoder(model.with_rows(max_context, max_tokens), max_context)
    absent = [name for name, buffer in module.named_buffers() if buffer.is_meta]
    assert not absent, f"buffers on the meta device: {absent}; create them with device='cpu'"
    return module.eval()


def quantized_module(checkpoint: Path, program: Path, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Return the module of a checkpoint with the quantized weights of its program."""
    source = read_checkpoint(checkpoint)
    with suppress_logs():
        module = build_module(source, max_context, max_tokens)
        for name, (codes, kind) in quantized_weights(source, program).items():
            replace_layer(module, name, codes, kind)
    return module


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


def export_module(module: torch.nn.Module, source: Checkpoint, path: Path, sizes: ProgramSizes) -> None:
    """Export a decoder with ExecuTorch."""
    # Two tokens: torch.export specializes a size of one as a constant.
    example: tuple[Any, ...] = (torch.tensor([[1, 2]]), {"input_pos": torch.tensor([0])})
    shapes = ({1: torch.export.Dim("tokens", max=sizes.max_tokens - 1)}, {"input_pos": {0: 1}})
    options = {"require_dynamic_shapes": True, "alias_buffer_mutations": source.architecture.has_recurrent_state}
    lower(module, example, shapes, path=path, options=options, constant_methods=decoder_metadata(source, sizes))
