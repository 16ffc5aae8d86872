"""What was quantised, and how well it fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .recipe import AS_IT_IS, Kind


@dataclass(frozen=True)
class Layer:
    name: str
    kind: Kind
    rows: int
    columns: int
    error: float  # mean squared, relative to the mean square of the weight

    @property
    def weights(self) -> int:
        return self.rows * self.columns

    @property
    def bits(self) -> float:
        """Of all of it, scales among them."""
        return self.weights * self.kind.bits_per_weight(self.columns)


@dataclass
class Report:
    layers: list[Layer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # what is less than the checkpoint could give

    @property
    def bits_per_weight(self) -> float:
        """Of the linear layers and the embedding."""
        return sum(layer.bits for layer in self.layers) / max(1, sum(layer.weights for layer in self.layers))

    def compare(self, formats: Mapping[str, str]) -> None:
        """Note what became of layers that a checkpoint has in these formats, by name."""
        found = Counter(
            (formats[layer.name], str(layer.kind), layer.error == 0)
            for layer in self.layers
            if layer.name in formats and layer.kind != AS_IT_IS
        )
        for (stored, kind, exact), count in found.items():
            of = f"{count} layers that are {stored} in the checkpoint"
            if exact:
                self.notes.append(f"{of} keep their values as {kind}")
            else:
                self.warnings.append(f"{of} are quantised a second time, as {kind}; from f16 or f32 less would be lost")

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
