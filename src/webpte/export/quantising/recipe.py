"""Choose the format of each layer from names and shapes alone: before any work, and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import InputError, UnsupportedError

QUANTIZERS = ("4w", "8w", "8da4w")
AUTO = "auto"  # 4w, and 8w where a budget allows: of language models, which can be read with
HEADS = ("4", "8", "none")
EMBEDDING = "tok_embeddings"
HEAD = "output"
Shape = tuple[int, ...]  # rows, columns


class WeightFormat(NamedTuple):
    """How a weight is stored. Scales are f32, one for every `group` columns of a row, or one a row."""

    name: str  # "4w", "8w", "8da4w", or "f32": as it is
    group: int = 0

    @property
    def bits(self) -> int:
        return {"8w": 8, "f32": 32}.get(self.name, 4)

    def bits_per_weight(self, columns: int) -> float:
        """With the scales."""
        return self.bits if self.name == "f32" else self.bits + 32 / (self.group or columns)

    def __str__(self) -> str:
        return f"{self.name} in groups of {self.group}" if self.group else self.name


UNQUANTIZED = WeightFormat("f32")
INT8 = WeightFormat("8w")


@dataclass
class Recipe:
    """The kind of each linear layer and of the embedding, by name, and what there is to say about it."""

    linears: dict[str, WeightFormat]
    embedding: WeightFormat = UNQUANTIZED
    notes: list[str] = field(default_factory=list)


def check_quantizer(mode: str, group_size: int) -> None:
    if mode not in QUANTIZERS:
        raise InputError(f"quantize is one of {', '.join(QUANTIZERS)}, not {mode!r}")
    by_row = mode == "8da4w" and group_size == 0  # one scale a row
    if isinstance(group_size, bool) or not isinstance(group_size, int) or (group_size < 2 and not by_row):
        raise InputError(f"group_size is {group_size!r}; a whole number above 1 is wanted, such as 32")


def check_budget(mode: str | None, budget: float | None, calibrate: bool) -> None:
    if (mode == AUTO) != (budget is not None):
        raise InputError(f"budget, such as 5.5, goes with quantize {AUTO!r} and that with it: not {budget} with {mode}")
    if budget is None:
        return
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 4 < budget <= 32:
        raise InputError(f"budget is {budget!r}; bits per weight are wanted, above 4 and at most 32")
    if not calibrate:
        raise InputError(f"quantize is {AUTO!r} and calibrate false: what layers lose is measured while a text is read")


def check_head(head: str | None, mode: str | None) -> None:
    if head is not None and head not in HEADS:
        raise InputError(f"head is one of {', '.join(HEADS)}, not {head!r}")
    if head in ("4", "8") and mode is None:
        raise InputError(f"head is {head!r} and quantize is not given: a head is quantised where the layers are")
    if head == "4" and mode == "8w":
        raise InputError("head is '4' and quantize '8w': a head in fewer bits than the layers loses the most")


def embedding_kind(text: str) -> WeightFormat:
    """ "4,32", "8" or "none"."""
    bits, _, group = (part.strip() for part in text.partition(","))
    if bits in ("8", "none") and not group:
        return INT8 if bits == "8" else UNQUANTIZED
    if bits != "4" or not group.isdecimal() or int(group) < 2 or int(group) % 2:
        raise InputError(
            f'embedding is "8", "none", or "4,GROUP" with an even group size, such as "4,32", not {text!r}'
        )
    return WeightFormat("4w", int(group))


def linear_recipe(linears: Mapping[str, Shape], mode: str, group_size: int, head: str | None = None) -> Recipe:
    """The kinds of linear layers of these shapes; those that cannot be in 4 bits are in 8, or stay as they are."""
    check_quantizer(mode, group_size)
    wanted = INT8 if mode == "8w" else WeightFormat(mode, group_size)
    recipe = Recipe({})
    for name, shape in linears.items():
        asked = {"8": INT8, "none": UNQUANTIZED}.get(head or "", wanted) if name == HEAD else wanted
        kind = recipe.linears[name] = next(kind for kind in (asked, INT8, UNQUANTIZED) if fits(kind, shape))
        if kind != asked:
            recipe.notes.append(f"{name}, {shape[0]} by {shape[1]}, is {kind}: {_misfit(asked, shape)}")
    if linears and all(kind != wanted for name, kind in recipe.linears.items() if name != HEAD or head is None):
        first = f"no layer can be quantised as {wanted}; these are {len(linears)}, the first of them:"
        shown = [f"  {name}: {_misfit(wanted, shape)}" for name, shape in list(linears.items())[:3]]
        raise UnsupportedError("\n".join([first, *shown]), list(linears))
    return recipe


def fits(kind: WeightFormat, shape: Shape) -> bool:
    """Whether ExecuTorch can export it: it asks for rows by fours, and the delegate for columns."""
    return kind == UNQUANTIZED or not (shape[0] % 4 or shape[1] % 4 or (kind.group and shape[1] % kind.group))


def _misfit(kind: WeightFormat, shape: Shape) -> str:
    if shape[0] % 4:
        return f"{shape[0]} rows are not divided by 4"
    if shape[1] % 4:
        return f"{shape[1]} columns are not divided by 4"
    return f"{shape[1]} columns are not divided by the group size, {kind.group}"


def check_embedding(kind: WeightFormat, width: int) -> None:
    group = kind.group
    if group and (width % group or width == group):  # ExecuTorch cannot fuse an embedding with one group a row
        raise UnsupportedError(
            f"an embedding of width {width} cannot be quantised in groups of {group}: a group size that divides "
            "the width and is below it is wanted"
        )
