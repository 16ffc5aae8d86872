"""What was quantized, and what it lost: the report of an export, and the file beside a program that has it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checkpoints.recipe import WeightFormat

SUFFIX = ".quality.json"  # of the file beside a program


@dataclass(frozen=True)
class LayerResult:
    """The format of a layer or of an embedding, and its error."""

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
    """The formats of a program's layers."""

    layers: list[LayerResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # losses that another checkpoint would avoid

    @property
    def bits_per_weight(self) -> float:
        """Return the mean over linear layers and embedding."""
        return sum(layer.bits for layer in self.layers) / max(1, sum(layer.weights for layer in self.layers))

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


def quality_path(program: Path) -> Path:
    """Return the path of the quality file beside a program."""
    return program.with_name(program.stem + SUFFIX)


def write_quality(program: Path, quality: Mapping[str, Any]) -> Path:
    """Write the quality file of a program, with the size of the program."""
    path = quality_path(program)
    content = {"bytes": program.stat().st_size, **quality}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def read_quality(files: Iterable[Path]) -> dict[str, Any] | None:
    """Return the contents of the quality file among these files, if there is one."""
    path = next((file for file in files if file.name.endswith(SUFFIX)), None)
    return None if path is None else dict(json.loads(path.read_text(encoding="utf-8")))


def quality_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    """Yield the contents of a quality file as lines of text."""
    if "quantized" in quality:
        layers = quality["quantized"]
        formats = ", ".join(f"{count} × {kind}" for kind, count in layers["kinds"].items())
        yield f"{layers['bits_per_weight']:.2f} bits per weight; layers: {formats}"
        yield from layers["notes"]
    if "left_out" in quality:
        yield f"quality was not measured: {quality['left_out']}"
    if "kl" not in quality:
        return
    kl, same = quality["kl"], quality["agreement"]["value"]
    yield f"KL divergence from the float model {kl['value']:.4f} ± {kl['error']:.4f}; same top token in {same:.1%}"
    before, after = quality["float_perplexity"]["value"], quality["perplexity"]["value"]
    yield f"perplexity {after:.2f} (float model {before:.2f}) on {quality['tokens']:,} tokens of {quality['text']}"
