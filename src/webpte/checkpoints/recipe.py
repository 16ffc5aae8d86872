"""Choose the format of each layer from names and shapes alone: before any work, and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import InputError, UnsupportedError
from ..text import plural

QUANTIZERS = ("4w", "8w", "8da4w")
AUTO = "auto"  # 4w, and 8w where a bits_per_weight allows; of language models, which can be calibrated
FROM_CHECKPOINT = "checkpoint"  # formats that suit those of the checkpoint
HEADS = ("4", "8", "none")
EMBEDDING = "tok_embeddings"
PER_LAYER_EMBEDDING = "per_layer_embeddings"  # those of all layers in a row
HEAD = "output"
EXPERT = ".experts."  # in the names of an expert's layers
EXPERT_GROUP, WORD_CODES = 32, 8
FLOAT_LAYERS = ("router", "shared_gate")  # of mixtures of experts: they are small, and their errors choose experts
Shape = tuple[int, ...]  # rows, columns


class WeightFormat(NamedTuple):
    """The format of a weight. Scales, f32 or in MXFP4 bytes, stand for `group` columns of a row, or for all."""

    name: str  # "4w", "8w", "8da4w", "mxfp4" or "f32"
    group: int = 0

    @property
    def bits(self) -> int:
        return {"8w": 8, "f32": 32}.get(self.name, 4)

    def bits_per_weight(self, columns: int) -> float:
        """Return the bits per weight, including scales."""
        scale_bits = {"f32": 0, MXFP4.name: 8}.get(self.name, 32)
        return self.bits + scale_bits / (self.group or columns)

    def __str__(self) -> str:
        return f"{self.name} in groups of {self.group}" if self.group else self.name


UNQUANTIZED = WeightFormat("f32")
INT8 = WeightFormat("8w")
MXFP4 = WeightFormat("mxfp4", 32)  # of experts that the checkpoint has in it


@dataclass
class Recipe:
    """The format of each linear layer, by name, and of the embedding, with notes for the report."""

    linears: dict[str, WeightFormat]  # and of the embeddings of layers
    embedding: WeightFormat = UNQUANTIZED
    notes: list[str] = field(default_factory=list)


def first_rounding(count: int, stored: str, kind: WeightFormat | str) -> str:
    """Return a note on layers that are quantized in the checkpoint, and have the same values in the program."""
    layers = plural(count, "layer")
    return f"{layers} with their exact values: {stored} in the checkpoint, {kind} in the program"


def second_rounding(count: int, stored: str, kind: WeightFormat | str) -> str:
    """Return a warning for layers that are quantized in the checkpoint, and again in the program with a loss."""
    layers = plural(count, "layer")
    return f"{layers} quantized a second time: {stored} in the checkpoint, {kind} in the program; f16 or f32 loses less"


def check_quantizer(mode: str, group_size: int) -> None:
    if mode not in QUANTIZERS:
        raise InputError(
            argument="quantize", expected=f"one of {', '.join(QUANTIZERS)}", got=repr(mode), code="quantize"
        )
    by_row = mode == "8da4w" and group_size == 0  # one scale per row
    if isinstance(group_size, bool) or not isinstance(group_size, int) or (group_size < 2 and not by_row):
        raise InputError(
            argument="group_size", expected="an integer above 1, such as 32", got=repr(group_size), code="group_size"
        )


def check_bits_per_weight(mode: str | None, bits_per_weight: float | None, calibrate: bool) -> None:
    if (mode == AUTO) != (bits_per_weight is not None):
        raise InputError(
            argument="bits_per_weight",
            expected=f"a number with quantize {AUTO!r}, and none otherwise",
            got=f"{bits_per_weight} with {mode}",
            code="bits_per_weight",
        )
    if bits_per_weight is None:
        return
    if (
        isinstance(bits_per_weight, bool)
        or not isinstance(bits_per_weight, int | float)
        or not 4 < bits_per_weight <= 32
    ):
        raise InputError(
            argument="bits_per_weight",
            expected="a number above 4 and at most 32",
            got=repr(bits_per_weight),
            code="bits_per_weight",
        )
    if not calibrate:
        raise InputError(
            f"quantize {AUTO!r} requires calibrate: the loss of layers is measured on a text", code="calibrate"
        )


def check_lm_head(head: str | None, mode: str | None) -> None:
    if head is not None and head not in HEADS:
        raise InputError(argument="lm_head", expected=f"one of {', '.join(HEADS)}", got=repr(head), code="lm_head")
    if head in ("4", "8") and mode is None:
        raise InputError(
            f"lm_head {head!r} requires quantize: the head is quantized only with the layers", code="lm_head"
        )
    if head == "4" and mode == "8w":
        raise InputError(
            argument="lm_head",
            expected="'8' or 'none' with quantize '8w'",
            got="'4', fewer bits than the layers",
            code="lm_head",
        )


def embedding_kind(text: str) -> WeightFormat:
    """Return the format of the option `embedding`, such as "4,32", "8" or "none"."""
    bits, _, group = (part.strip() for part in text.partition(","))
    if bits in ("8", "none") and not group:
        return INT8 if bits == "8" else UNQUANTIZED
    if bits != "4" or not group.isdecimal() or int(group) < 2 or int(group) % 2:
        raise InputError(
            argument="embedding",
            expected='"8", "none", or "4,GROUP" with an even group size, such as "4,32"',
            got=repr(text),
            code="embedding",
        )
    return WeightFormat("4w", int(group))


def linear_recipe(linears: Mapping[str, Shape], mode: str, group_size: int, head: str | None = None) -> Recipe:
    """Return the formats of linear layers of these shapes. Layers that cannot have 4 bits get 8, or stay floats."""
    check_quantizer(mode, group_size)
    if mode == "8w" and any(EXPERT in name for name in linears):
        raise UnsupportedError(
            argument="quantize",
            expected="'4w', '8da4w' or none for a mixture of experts, whose experts have 4 bits or f32",
            got="'8w'",
            code="expert_format",
        )
    target = INT8 if mode == "8w" else WeightFormat(mode, group_size)
    recipe = Recipe({})
    for name, shape in linears.items():
        requested = {"8": INT8, "none": UNQUANTIZED}.get(head or "", target) if name == HEAD else target
        kinds = [requested, INT8, UNQUANTIZED]
        if EXPERT in name:  # their inputs have no 8 bits, and their kernel reads whole words
            requested = WeightFormat("4w", group_size or EXPERT_GROUP)
            kinds = [requested] if requested.group % WORD_CODES == 0 else []
            kinds += [WeightFormat("4w", EXPERT_GROUP), UNQUANTIZED]
        kind = recipe.linears[name] = next(kind for kind in kinds if fits(kind, shape))
        if kind != requested:
            recipe.notes.append(f"{name}, {shape[0]} by {shape[1]}, is {kind}: {_misfit(requested, shape)}")
    if linears and all(kind != target for name, kind in recipe.linears.items() if name != HEAD or head is None):
        first = f"none of the {len(linears)} layers can be quantized as {target}; the first of them:"
        reasons = [f"  {name}: {_misfit(target, shape)}" for name, shape in list(linears.items())[:3]]
        raise UnsupportedError("\n".join([first, *reasons]), list(linears), code="no_layer")
    return recipe


def fits(kind: WeightFormat, shape: Shape) -> bool:
    """Return whether ExecuTorch can export it: rows and columns must be multiples of 4."""
    return kind == UNQUANTIZED or not (shape[0] % 4 or shape[1] % 4 or (kind.group and shape[1] % kind.group))


def _misfit(kind: WeightFormat, shape: Shape) -> str:
    if shape[0] % 4:
        return f"{shape[0]} rows are not divided by 4"
    if shape[1] % 4:
        return f"{shape[1]} columns are not divided by 4"
    return f"{shape[1]} columns are not divided by the group size, {kind.group}"


def check_embedding(kind: WeightFormat, width: int) -> None:
    group = kind.group
    if group and (width % group or width == group):  # ExecuTorch cannot fuse an embedding with one group per row
        raise UnsupportedError(
            argument="embedding",
            expected=f"a group size that divides the width {width} and is below it",
            got=f"groups of {group}",
            code="embedding",
        )
