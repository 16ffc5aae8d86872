"""Export small programs with the ExecuTorch beside this interpreter: `python export_programs.py FOLDER [NAME…]`.

It runs in environments of old releases, so it imports nothing of this project. For each program it writes NAME.pte and
NAME.npz, which has the inputs and eager PyTorch's outputs of each call. If an export fails, NAME.txt has the reason.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.nn import functional


class Exported(NamedTuple):
    """What is exported, and the inputs of the calls whose results are compared."""

    model: Any
    calls: list[tuple[torch.Tensor, ...]]
    dynamic: Any = None
    eager: Any = None  # the model that gives the results, where the CPU cannot run what is exported


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.hardswish(self.first(x))
        gate = (self.second(hidden) + hidden).clamp(-0.5, 0.75)
        return self.third(
            functional.relu(hidden * gate) - functional.relu6(gate - hidden) / (1.5 + gate).clamp(0.25, 4.0)
        )


def mlp() -> Exported:
    return Exported(Gated().eval(), [(torch.randn(8, 16),) for _ in range(2)])


def randomised(model: nn.Module) -> nn.Module:
    """Give batch norms statistics other than those of a new module."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 2)
    return model.eval()


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 12, 1)
        self.up, self.head = nn.ConvTranspose2d(12, 6, 2, 2), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pointwise(self.depthwise(functional.relu(self.norm(self.stem(x)))))
        x = torch.sigmoid(self.up(functional.max_pool2d(functional.relu6(x), 3, 2, 1)))
        return self.head(x.mean((2, 3)))


def cnn() -> Exported:
    return Exported(randomised(Convolutions()), [(torch.randn(1, 3, 32, 32),) for _ in range(2)])


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3, with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), nn.BatchNorm2d(24), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 8, 1), nn.ReLU(), nn.Conv2d(8, 24, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


def mobilenet() -> Exported:
    return Exported(randomised(Inverted()), [(torch.randn(1, 8, 14, 14),) for _ in range(2)])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 3, stride=2)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.first(x))
        return self.last(x + self.pointwise(functional.relu(self.depthwise(x))))


def static_int8(model: nn.Module, calls: list[tuple[torch.Tensor, ...]]) -> Exported:
    """int8 weights and activations, as XNNPACK's quantizer marks them: Vulkan's own marks weights only."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model.eval(), calls[0]).module(), quantizer)
    for call in calls:
        prepared(*call)
    return Exported(convert_pt2e(prepared), calls)


def int8_cnn() -> Exported:
    # ExecuTorch 1.0 cannot export depthwise convolutions over most other widths.
    return static_int8(Residual(), [(torch.randn(1, 4, 9, 32),) for _ in range(2)])


def int8_linear() -> Exported:
    # Before ExecuTorch 1.2 a bias keeps a layer from being exported.
    layers = [nn.Linear(64, 32, bias=False), nn.ReLU(), nn.Linear(32, 32, bias=False)]
    return static_int8(nn.Sequential(*layers), [(torch.randn(8, 64),) for _ in range(2)])


class Linears(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width, bias=False), nn.Linear(width, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(functional.relu(self.first(x)))


def int4() -> Exported:
    """4-bit weights, by torchao or, before ExecuTorch 1.0, by the quantizer of the Vulkan backend."""
    calls = [(torch.randn(rows, 128),) for rows in (8, 3, 1)]
    rows = {0: torch.export.Dim("rows", min=1, max=16)}
    try:
        from executorch.backends.vulkan._passes.int4_weight_only_quantizer import VkInt4WeightOnlyQuantizer
    except ImportError:
        from torchao.quantization.granularity import PerGroup
        from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

        model = Linears(128).eval()
        quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
        return Exported(model, calls, (rows,))
    model = Linears(128).eval()
    eager = copy.deepcopy(model)
    quantized = VkInt4WeightOnlyQuantizer(groupsize=32).quantize(model)
    for name in ("first", "second"):
        rounded, weight = dequantized(getattr(quantized, name), 32), getattr(eager, name).weight
        assert (rounded - weight).abs().max() < 0.02, "the codes do not stand for the weights"
        weight.data = rounded
    return Exported(quantized, calls, (rows,), eager)


def dequantized(linear: Any, group: int) -> torch.Tensor:
    """Return the weights of the Vulkan backend's 4-bit layer, whose op only CUDA can run."""
    codes = torch.stack((linear.weight >> 4, linear.weight & 15), dim=-1).flatten(1)
    scales, zeros = linear.scales_and_zeros.repeat_interleave(group, 0).permute(2, 1, 0)
    return (codes.float() - 8) * scales + zeros


def int8_int4() -> Exported:
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    model = Linears(128).eval()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))
    return Exported(model, [(torch.randn(8, 128),) for _ in range(2)])


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (y.view(batch, tokens, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))


def attention() -> Exported:
    tokens = {1: torch.export.Dim("tokens", min=2, max=16)}
    return Exported(Attention().eval(), [(torch.randn(1, n, 32),) for n in (8, 3, 16)], (tokens,))


def transformer() -> Exported:
    model = nn.Sequential(
        nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU("tanh")
    )
    rows = {0: torch.export.Dim("rows", min=2, max=16)}
    return Exported(model.eval(), [(torch.randn(n, 32),) for n in (8, 3, 16)], (rows,))


def embedding() -> Exported:
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 8), nn.Softmax(-1))
    tokens = {1: torch.export.Dim("tokens", min=2, max=16)}
    return Exported(model.eval(), [(torch.randint(0, 50, (1, n)),) for n in (7, 3, 16)], (tokens,))


PROGRAMS: dict[str, Callable[[], Exported]] = {
    program.__name__: program
    for program in (mlp, cnn, mobilenet, int8_cnn, int8_linear, int4, int8_int4, attention, transformer, embedding)
}


def export(program: Exported, path: Path) -> None:
    """Write the program and what eager PyTorch gives."""
    arrays: dict[str, Any] = {}
    eager = copy.deepcopy(program.model if program.eager is None else program.eager)
    with torch.no_grad():
        for position, call in enumerate(program.calls):
            arrays |= {f"{position}.input{i}": value.numpy() for i, value in enumerate(call)}
            arrays[f"{position}.output0"] = eager(*call).numpy().copy()
    exported = torch.export.export(program.model, program.calls[0], dynamic_shapes=program.dynamic)
    options = {"require_dynamic_shapes": True} if program.dynamic else {}
    lowered = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner(options)]).to_executorch()
    with path.with_suffix(".pte").open("wb") as file:
        lowered.write_to_file(file)
    np.savez_compressed(path.with_suffix(".npz"), **arrays)


def reason(error: BaseException) -> str:
    """Return what was raised first, in one line and without paths of this machine."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, subprocess.CalledProcessError):
        return f"{Path(error.cmd[0]).name} ends with status {error.returncode}"
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0]}"


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in PROGRAMS.items():
        if names and name not in names:
            continue
        torch.manual_seed(0)
        path = folder / name
        for suffix in (".pte", ".npz", ".txt"):
            path.with_suffix(suffix).unlink(missing_ok=True)
        try:
            export(program(), path)
        except Exception as error:  # whatever an old exporter raises is what the table has to say
            path.with_suffix(".txt").write_text(f"{reason(error)}\n{traceback.format_exc()}")
        print(f"{name}: {'exported' if path.with_suffix('.pte').exists() else 'not exported'}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
