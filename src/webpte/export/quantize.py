"""Replace linear layers and the embedding of a torch module by quantized ones, with the codes of the builder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder.quantize import Grouped
from ..builder.recipe import nearest_codes, squares
from ..builder.report import LayerResult, QuantizationReport
from ..checkpoints.recipe import EMBEDDING, UNQUANTIZED, Recipe, Shape, WeightFormat, linear_recipe
from ..progress import OnProgress, Progress, ignore

if TYPE_CHECKING:
    import torch


def quantize_linears(
    module: torch.nn.Module, mode: str, group_size: int, progress: OnProgress = ignore
) -> torch.nn.Module:
    """Quantize all linear layers of a module."""
    import torch

    if isinstance(module, torch.nn.Linear):  # a layer is replaced in its parent
        module = torch.nn.Sequential(module)
    apply_recipe(module, linear_recipe(linear_shapes_of(module), mode, group_size), progress=progress)
    return module


def linear_shapes_of(module: torch.nn.Module) -> dict[str, Shape]:
    """Return the shape of each linear layer by name."""
    import torch

    return {n: tuple(m.weight.shape) for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)}


def apply_recipe(
    module: torch.nn.Module, recipe: Recipe, *, embedding: str = EMBEDDING, progress: OnProgress = ignore
) -> QuantizationReport:
    """Replace the layers that `recipe` names, in place. `embedding` is the name of the embedding."""
    report = QuantizationReport(notes=list(recipe.notes))
    kinds = dict(recipe.linears)
    if recipe.embedding != UNQUANTIZED:
        kinds[embedding] = recipe.embedding
    for name, kind in kinds.items():
        weight = module.get_submodule(name).weight
        error = 0.0
        if kind != UNQUANTIZED:
            codes, error = _codes(name, weight, kind)
            replace_layer(module, name, codes, kind)
        rows, columns = weight.shape
        report.layers.append(LayerResult(name, kind, rows, columns, error))
        progress(Progress("quantize", len(report.layers), len(kinds), "layers"))
    return report


def _codes(name: str, weight: torch.Tensor, kind: WeightFormat) -> tuple[Grouped, float]:
    """Return the codes of a weight, and their relative error. Those that torchao has found in this format are kept."""
    group = kind.group or weight.shape[1]
    stored = stored_codes(weight, group, kind.bits)
    if stored is not None:
        return stored, 0.0
    if hasattr(weight, "qdata"):  # torchao's tensor, which supports few functions of torch
        weight = weight.dequantize()
    values = weight.detach().float().numpy()
    codes = nearest_codes(f"{name}.weight", values, kind.bits, group)
    return codes, squares(values - codes.values()) / (squares(values) or 1.0)


def stored_codes(weight: torch.Tensor, group: int, bits: int) -> Grouped | None:
    """Return the codes and scales of a weight that torchao quantized in the same format, otherwise None."""
    import torch
    from torchao.quantization import IntxUnpackedToInt8Tensor

    if not isinstance(weight, IntxUnpackedToInt8Tensor):
        return None
    same = weight.target_dtype == {4: torch.int4, 8: torch.int8}[bits] and tuple(weight.block_size) == (1, group)
    if not same or bool((weight.zero_point != 0).any()):
        return None
    return Grouped(weight.qdata.numpy(), weight.scale.float().reshape(len(weight.qdata), -1).numpy())


def replace_layer(module: torch.nn.Module, name: str, codes: Grouped, kind: WeightFormat) -> None:
    """Replace a linear layer or an embedding by one with these codes, in the form that the exporter recognizes."""
    import torch

    from .quantized_modules import Linear8, QuantizedEmbedding, intx_weight

    layer = module.get_submodule(name)
    if not isinstance(layer, torch.nn.Linear):
        layer = QuantizedEmbedding(codes, kind.bits)
    elif kind.bits == 8:
        layer = Linear8(codes, layer.bias)
    else:
        layer.weight = torch.nn.Parameter(intx_weight(codes, by_token=kind.name == "8da4w"), requires_grad=False)
    module.set_submodule(name, layer)
