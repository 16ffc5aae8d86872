"""Replace a module's linear layers and embedding by quantized ones, and report the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...builder.quantize import check_range
from ...checkpoints.recipe import EMBEDDING, HEAD, UNQUANTIZED, Recipe, WeightFormat, linear_recipe, second_rounding
from ...progress import OnProgress, Progress, ignore
from ...text import plural
from .calibration import Calibration, Moments, Read, skip_reading
from .compensation import compensated
from .grid import QuantizedWeight, exact, least_squares, squared_error

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LayerResult:
    name: str
    kind: WeightFormat
    rows: int
    columns: int
    error: float  # mean squared, relative to the mean square of the weight

    @property
    def weights(self) -> int:
        return self.rows * self.columns

    @property
    def bits(self) -> float:
        """Return the bits of the layer, including scales."""
        return self.weights * self.kind.bits_per_weight(self.columns)


@dataclass
class QuantizationReport:
    layers: list[LayerResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # losses that another checkpoint would avoid

    @property
    def bits_per_weight(self) -> float:
        """Return the mean over linear layers and embedding."""
        return sum(layer.bits for layer in self.layers) / max(1, sum(layer.weights for layer in self.layers))

    def compare(self, formats: Mapping[str, str]) -> None:
        """Add notes and warnings on layers that are quantized in the checkpoint, by name in these formats."""
        counts = Counter(
            (formats[layer.name], str(layer.kind), layer.error == 0)
            for layer in self.layers
            if layer.name in formats and layer.kind != UNQUANTIZED
        )
        for (stored, kind, lossless), count in counts.items():
            if lossless:
                layers = plural(count, "layer")
                self.notes.append(
                    f"{layers} with their exact values: {stored} in the checkpoint, {kind} in the program"
                )
            else:
                self.warnings.append(second_rounding(count, stored, kind))

    def json(self) -> dict[str, Any]:
        layers = {
            layer.name: {"kind": layer.kind.name, "group": layer.kind.group or None, "error": layer.error}
            for layer in self.layers
        }
        return {
            "bits_per_weight": self.bits_per_weight,
            "kinds": dict(Counter(str(layer.kind) for layer in self.layers)),
            "layers": layers,
            "notes": self.notes,
            "warnings": self.warnings,
        }


def quantized_linear(linear: torch.nn.Linear, codes: QuantizedWeight, kind: str) -> torch.nn.Module:
    """Return the layer with a quantized weight; `kind` is "4w", "8da4w" or "8w"."""
    import torch
    from torchao.quantization import IntxUnpackedToInt8Tensor
    from torchao.quantization.quantize_.workflows.intx import intx_unpacked_to_int8_tensor as intx

    if kind == "8w":
        from ..modules.quantized import Linear8

        return Linear8(codes, linear.bias)
    by_token = intx.IntxUnpackedToInt8TensorActivationQuantization.INT8_ASYM_PER_TOKEN
    zeros = torch.zeros(codes.scales.shape, dtype=torch.int8)
    rounding = by_token if kind == "8da4w" else None
    block = (1, codes.group)
    weight = IntxUnpackedToInt8Tensor(codes.codes, codes.scales, zeros, torch.int4, block, torch.float32, rounding)
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    return linear


def stored_codes(weight: torch.Tensor, group: int, bits: int) -> QuantizedWeight | None:
    """Return the codes and scales of a weight that torchao quantized in the same format, otherwise None."""
    import torch
    from torchao.quantization import IntxUnpackedToInt8Tensor

    if not isinstance(weight, IntxUnpackedToInt8Tensor):
        return None
    same = weight.target_dtype == {4: torch.int4, 8: torch.int8}[bits] and tuple(weight.block_size) == (1, group)
    if not same or bool((weight.zero_point != 0).any()):
        return None
    return QuantizedWeight(weight.qdata, weight.scale.float().reshape(len(weight.qdata), -1))


def quantized_embedding(codes: QuantizedWeight, bits: int) -> torch.nn.Module:
    from ..modules.quantized import QuantizedEmbedding

    return QuantizedEmbedding(codes, bits)


def quantize_linears(
    module: torch.nn.Module, mode: str, group_size: int, progress: OnProgress = ignore
) -> torch.nn.Module:
    """Quantize all linear layers of a module, without calibration."""
    import torch

    if isinstance(module, torch.nn.Linear):  # a layer is replaced in its parent
        module = torch.nn.Sequential(module)
    apply_recipe(module, linear_recipe(shapes_of(module), mode, group_size), progress=progress)
    return module


def apply_recipe(
    module: torch.nn.Module,
    recipe: Recipe,
    *,
    pieces: Sequence[Sequence[int]] = (),
    formats: Mapping[str, str] | None = None,
    read: Read = skip_reading,
    embedding: str = EMBEDDING,
    progress: OnProgress = ignore,
) -> QuantizationReport:
    """Replace the layers that `recipe` names, in place.

    `pieces` are tokens of a text, in pieces of one call. With them, linear layers in blocks are rounded for their
    inputs while the model reads the text. Without them, weights are rounded to the nearest value. `formats` has the
    formats of layers that are quantized in the checkpoint, for the report. `read` is called before parameters are used
    and may read them. Quantized parameters are dropped, so the whole model is never in memory as floats. `embedding`
    is the name of the embedding.
    """
    report = QuantizationReport(notes=list(recipe.notes))
    work = _Quantizer(module, recipe, report, read, embedding, progress)
    if pieces:
        moments = Calibration(module, pieces, read).run(work.block)
        work.rest(moments)
    else:
        work.rest({})
    work.embedding()
    report.compare(formats or {})
    return report


def shapes_of(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    import torch

    return {n: tuple(m.weight.shape) for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)}


class _Quantizer:
    """Quantize layers in the order of the calls, each once."""

    def __init__(
        self,
        module: torch.nn.Module,
        recipe: Recipe,
        report: QuantizationReport,
        read: Read,
        embedding: str,
        progress: OnProgress,
    ) -> None:
        self._module = module
        self._left = dict(recipe.linears)
        self._embedding = (embedding, recipe.embedding)
        self._report = report
        self._read = read
        self._progress = progress
        self._total = len(self._left) + (recipe.embedding != UNQUANTIZED)

    def block(self, name: str, moments: Moments) -> None:
        for layer in [layer for layer in self._left if layer.startswith(f"{name}.")]:
            self._linear(layer, moments.get(layer))

    def rest(self, moments: Moments) -> None:
        for layer in list(self._left):
            self._linear(layer, moments.get(layer))

    def embedding(self) -> None:
        name, kind = self._embedding
        if kind == UNQUANTIZED:
            return
        self._read(f"{name}.")
        weight = self._module.get_parameter(f"{name}.weight").detach()
        codes = self._codes(name, weight, kind, None)
        self._replace(name, quantized_embedding(codes, kind.bits))
        self._note(name, kind, weight, codes)

    def _linear(self, name: str, moments: torch.Tensor | None) -> None:
        import torch

        kind = self._left.pop(name)
        self._read(f"{name}.")
        linear = self._module.get_submodule(name)
        assert isinstance(linear, torch.nn.Linear)
        weight = linear.weight.detach()
        if kind == UNQUANTIZED:
            self._note(name, kind, weight, None)
            return
        codes = stored_codes(weight, kind.group or weight.shape[1], kind.bits)
        if hasattr(weight, "qdata"):  # torchao's tensor, which supports few functions of torch
            weight = weight.dequantize()
        codes = codes or self._codes(name, weight, kind, moments)
        self._replace(name, quantized_linear(linear, codes, kind.name))
        self._note(name, kind, weight, codes)

    def _codes(
        self, name: str, weight: torch.Tensor, kind: WeightFormat, moments: torch.Tensor | None
    ) -> QuantizedWeight:
        group = kind.group or weight.shape[1]
        same = exact(weight, group, kind.bits)
        if same is not None:
            return same
        check_range(f"{name}.weight", weight)
        if moments is None or (
            name == HEAD and kind.bits == 8
        ):  # with 8 bits the gain is small, and the head has many rows
            return least_squares(weight, group, kind.bits)
        return compensated(weight, group, kind.bits, moments)

    def _replace(self, name: str, layer: torch.nn.Module) -> None:
        parent, _, own = name.rpartition(".")
        setattr(self._module.get_submodule(parent), own, layer)

    def _note(self, name: str, kind: WeightFormat, weight: torch.Tensor, codes: QuantizedWeight | None) -> None:
        error = 0.0 if codes is None else squared_error(weight, codes)
        rows, columns = weight.shape
        self._report.layers.append(LayerResult(name, kind, rows, columns, error))
        self._progress(Progress("quantize", len(self._report.layers), self._total, "layers"))
