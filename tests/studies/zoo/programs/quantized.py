"""Quantized linears, convolutions and embeddings, by torchao, by ExecuTorch and by PT2E."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, module, program


def int4(inputs: int, outputs: int, group: int, bias: bool = True) -> nn.Module:
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    linear = nn.Linear(inputs, outputs, bias=bias).eval()
    quantize_(linear, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(group)))
    return linear


def by_executorch(mode: str, *widths: int, **more) -> nn.Module:
    from executorch.examples.models.llama.source_transformation.quantize import quantize

    first, middle, last = widths
    model = nn.Sequential(nn.Linear(first, middle, bias=False), nn.ReLU(), nn.Linear(middle, last, bias=False))
    return quantize(model, mode, **more)


def any_rows(model: nn.Module, width: int) -> Case:
    return case(model, [(randn(n, width),) for n in (23, 17, 1, 2, 5, 9)], {0: Dim("n", max=23)})


def every(*layers: nn.Module) -> nn.Module:
    return module(lambda self, x: tuple(layer(x) for layer in self.layers), layers=nn.ModuleList(layers))


@program(tolerance=2e-4)
def q4_odd() -> Case:
    """Groups of 16 to 96, outputs of 1 to 13."""
    sizes = ((12, 32), (4, 96), (7, 32), (1, 16))
    return any_rows(every(*(int4(96, n, g) for n, g in sizes), int4(96, 13, 48, False)), 96)


@program(tolerance=2e-4)
def q4_oddk() -> Case:
    """35 inputs."""
    return any_rows(every(int4(35, 8, 35), int4(35, 9, 7), int4(35, 5, 5)), 35)


@program(tolerance=2e-4)
def q4_et() -> Case:
    return any_rows(by_executorch("4w", 64, 96, 24, group_size=32, quantize_with_hqq=False), 64)


@program(tolerance=2e-2)
def q8da4w() -> Case:
    return any_rows(by_executorch("8da4w", 64, 40, 24, group_size=8, quantize_with_hqq=False), 64)


@program(tolerance=2e-2)
def q8da4w_ao() -> Case:
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    model = nn.Sequential(nn.Linear(96, 44), nn.GELU(), nn.Linear(44, 11)).eval()
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    quantize_(model[0], config)
    return any_rows(model, 96)


@program(tolerance=1e-4)
def q8w() -> Case:
    """8-bit weights by torchao."""
    from torchao.quantization.granularity import PerAxis
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(37, 19), nn.ReLU(), nn.Linear(19, 6)).eval()
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)))
    return any_rows(model, 37)


@program(tolerance=1e-4)
def q8_et() -> Case:
    """8-bit weights by ExecuTorch."""
    return any_rows(by_executorch("int8", 36, 20, 8), 36)


# ---------------------------------------------------------------- PT2E


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.b = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.c = nn.Conv2d(12, 16, 1)
        self.d = nn.Conv2d(16, 8, 3, stride=2, padding=1, groups=2)
        self.f = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.a(x)))
        x = F.relu(self.c(x + F.hardtanh(self.b(x), 0, 6)))
        x = self.d(torch.cat([x, x * 1], 1)[:, :16])
        return self.f(F.avg_pool2d(x, 2).mean((2, 3)))


def linears(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 21), nn.ReLU(), nn.Linear(21, 7))


def pt2e(model: nn.Module, steps: list, quantizer, *dims) -> Case:
    """Prepared, calibrated with the inputs it will see, converted."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(
        torch.export.export(model.eval(), steps[1], dynamic_shapes=dims or None).module(), quantizer
    )
    for step in steps:
        prepared(*step)
    converted = module(lambda self, x: self.model(x), model=convert_pt2e(prepared))
    return case(converted, steps, *dims, as_is=True, options={"require_dynamic_shapes": False})


def xnnpack(**config):
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

    chosen = xnnpack_quantizer.get_symmetric_quantization_config(**config)
    return xnnpack_quantizer.XNNPACKQuantizer().set_global(chosen)


def vulkan(**config):
    from executorch.backends.vulkan.quantizer import vulkan_quantizer

    chosen = vulkan_quantizer.get_symmetric_quantization_config(**config)
    return vulkan_quantizer.VulkanQuantizer().set_global(chosen)


@program(tolerance=3e-2)
def pt2e_x() -> Case:
    """XNNPACK's quantizer, per channel, any height."""
    steps = [(randn(1, 3, k, 13),) for k in (31, 29, 8, 9, 20)]
    return pt2e(Cnn(), steps, xnnpack(is_per_channel=True), {2: Dim("h", min=8, max=31)})


@program(tolerance=3e-2)
def pt2e_x_tensor() -> Case:
    """XNNPACK's quantizer, per tensor."""
    return pt2e(Cnn(), [(randn(2, 3, 15, 13),) for _ in range(4)], xnnpack(is_per_channel=False))


@program(tolerance=5e-2)
def pt2e_x_dynlin() -> Case:
    """XNNPACK's quantizer, activations as they come."""
    steps = [(randn(k, 33),) for k in (13, 11, 1, 2)]
    return pt2e(linears(33), steps, xnnpack(is_per_channel=True, is_dynamic=True), {0: Dim("n", max=13)})


@program(tolerance=5e-2)
def pt2e_vk() -> Case:
    """The Vulkan backend's quantizer, 8 bits, activations as they come."""
    steps = [(randn(k, 32),) for k in (13, 11, 1, 2)]
    return pt2e(linears(32), steps, vulkan(is_dynamic=True, weight_bits=8), {0: Dim("n", max=13)})


@program(tolerance=5e-2)
def pt2e_vk4() -> Case:
    """The Vulkan backend's quantizer, 4-bit weights."""
    steps = [(randn(k, 32),) for k in (13, 11, 1, 2)]
    return pt2e(linears(32), steps, vulkan(is_dynamic=False, weight_bits=4), {0: Dim("n", max=13)})


@program(tolerance=5e-2)
def pt2e_vk_cnn() -> Case:
    """The Vulkan backend's quantizer, convolutions."""
    return pt2e(Cnn(), [(randn(2, 3, 15, 13),) for _ in range(4)], vulkan(is_dynamic=False, weight_bits=8))


# ---------------------------------------------------------------- embeddings


def embedding(bits_and_group: str) -> Case:
    from executorch.examples.models.llama.source_transformation.quantize import get_quant_embedding_transform

    model = module(lambda self, x: self.l(self.e(x)), e=nn.Embedding(53, 64), l=nn.Linear(64, 12, bias=False)).eval()
    model = get_quant_embedding_transform(bits_and_group, False)(model)
    return case(model, [(torch.randint(0, 53, (1, k)),) for k in (23, 17, 1, 2)], {1: Dim("t", max=23)})


@program(tolerance=1e-4)
def emb_4_32() -> Case:
    """4 bits in groups of 32."""
    return embedding("4,32")


@program(tolerance=1e-4)
def emb_4_64() -> Case:
    """4 bits in groups of 64."""
    return embedding("4,64")


@program(tolerance=1e-4)
def emb_8_0() -> Case:
    """8 bits by row."""
    return embedding("8,0")


@program(tolerance=1e-4)
def emb_8_32() -> Case:
    """8 bits in groups of 32."""
    return embedding("8,32")
