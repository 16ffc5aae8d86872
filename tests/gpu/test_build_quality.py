"""What quantization loses, measured on the device: the layers that `auto` gives 8 bits, and the report of an export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.models.tiny_checkpoint import write_checkpoint
from webpte import CancelToken
from webpte.builder import export_llm
from webpte.builder.bit_allocation import bits_of, unit_losses, within_budget
from webpte.builder.context import choose_sizes
from webpte.builder.options import LLMOptions
from webpte.builder.report import quality_lines
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.recipe import EMBEDDING, INT8
from webpte.checkpoints.weights import CheckpointWeights
from webpte.errors import CancelledError, InputError
from webpte.llm import LLM
from webpte.measure.evaluation.programs import evaluate
from webpte.progress import Progress

SIZES: dict[str, Any] = {"max_context": 40, "max_tokens": 24}
TEXT = "the cat sat on the mat and looked at the dog. " * 2
PIECE = [5, 9, 40, 33, 21, 60]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webpte.builder.quality.evaluation_text", lambda: TEXT)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webpte.builder.quality.evaluation_text", lambda: "")


def quality(checkpoint: Path, path: Path, **options: Any) -> dict[str, Any]:
    export_llm(checkpoint, path, **SIZES, **options, quality=True)
    result: dict[str, Any] = json.loads(path.with_name(f"{path.stem}.quality.json").read_text())
    return result


def test_within_budget_raises_units_of_largest_loss(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of one input have one format, and no layer that would still fit has 4 bits."""
    source = read_checkpoint(checkpoint)
    recipe = LLMOptions("auto", group_size=8, embedding="4,32", lm_head="4", bits_per_weight=8.1).recipe(source)
    sizes = choose_sizes(source, **SIZES)
    with raises(InputError, "bits_per_weight", 4.5):
        within_budget(source, recipe, 4.5, PIECE, sizes)
    losses = unit_losses(source, recipe, PIECE, sizes)
    monkeypatch.setattr("webpte.builder.bit_allocation.unit_losses", lambda *args: losses)
    chosen = within_budget(source, recipe, 8.1, PIECE, sizes)
    eights = {name for name, kind in chosen.linears.items() if kind == INT8}
    shapes = {name: source.weights.sources[f"{name}.weight"].shape for name in (*chosen.linears, EMBEDDING)}
    kinds = {**chosen.linears, EMBEDDING: chosen.embedding}
    assert eights and bits_of(kinds, shapes) <= 8.1 * sum(rows * columns for rows, columns in shapes.values())
    assert all(eights >= set(unit) or not eights & set(unit) for unit in losses)
    gains = {unit: losses[unit] / sum(shapes[name][0] * shapes[name][1] for name in unit) for unit in losses}
    assert eights.issuperset(sorted(gains, key=lambda unit: gains[unit])[-1])
    assert f"{len(eights)} of 15 layers have 8 bits: those that lose the most in 4 bits" in chosen.notes


def test_unit_losses_are_those_of_single_units(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of zeros has exact codes and no loss, nor have the layers whose results it drops."""
    zeros = "layers.1.feed_forward.w2.weight"
    read, parts = CheckpointWeights.read, CheckpointWeights.parts
    monkeypatch.setattr(CheckpointWeights, "read", lambda self, name: read(self, name) * (name != zeros))
    monkeypatch.setattr(
        CheckpointWeights,
        "parts",
        lambda self, name, rows: (part * (name != zeros) for part in parts(self, name, rows)),
    )
    source = read_checkpoint(checkpoint)
    recipe = LLMOptions("4w", group_size=8).recipe(source)
    losses = unit_losses(source, recipe, PIECE, choose_sizes(source, **SIZES))
    assert len(losses) == 8 and ("layers.0.attention.wq", "layers.0.attention.wk", "layers.0.attention.wv") in losses
    assert losses.pop(("layers.1.feed_forward.w2",)) == 0
    assert losses.pop(("layers.1.feed_forward.w1", "layers.1.feed_forward.w3")) == 0
    assert min(losses.values()) > 1e-6


def test_export_quality_equals_evaluation_of_programs(checkpoint: Path, tmp_path: Path, short: None) -> None:
    same = quality(checkpoint, tmp_path / "float.pte")
    other = quality(checkpoint, tmp_path / "4w.pte", quantize="4w", calibrate=False)
    assert same["kl"]["value"] == 0 and same["agreement"]["value"] == 1
    assert same["perplexity"] == same["float_perplexity"] == other["float_perplexity"]
    assert other["kl"]["value"] > 1e-4 and other["perplexity"] != other["float_perplexity"]
    assert other["bytes"] == (tmp_path / "4w.pte").stat().st_size
    assert [line.split(" ")[0] for line in quality_lines(other)][-2:] == ["KL", "perplexity"]
    with LLM(tmp_path / "4w.pte") as program, LLM(tmp_path / "float.pte") as reference:
        result = evaluate(program, TEXT, against=reference)
    assert result.against is not None
    assert (result.tokens, result.windows) == (other["tokens"], other["windows"])
    assert result.perplexity.value == pytest.approx(other["perplexity"]["value"], rel=1e-4)
    assert result.against.kl.value == pytest.approx(other["kl"]["value"], rel=1e-3)


def test_export_quality_unmeasurable_still_exports(checkpoint: Path, tmp_path: Path, unmeasured: None) -> None:
    report = quality(checkpoint, tmp_path / "m.pte", quantize="4w", calibrate=False)
    assert "at least one token" in report["left_out"] and "kl" not in report
    assert list(quality_lines(report))[-1] == f"quality was not measured: {report['left_out']}"
    layers = report["quantized"]["layers"]
    errors = np.array([layer["error"] for layer in layers.values() if layer["kind"] == "4w"])
    assert len(errors) == 14 and errors.min() > 1e-3 and errors.max() < 0.02
    assert 0 < layers["output"]["error"] < 1e-3 and layers["output"]["kind"] == "8w"
    export_llm(checkpoint, tmp_path / "m.pte", **SIZES)
    assert not (tmp_path / "m.quality.json").exists()  # of the program that was replaced


def test_export_cancelled_while_measuring_leaves_no_files(checkpoint: Path, tmp_path: Path, short: None) -> None:
    cancel = CancelToken()

    def stop(event: Progress) -> None:
        if event.stage == "quality":
            cancel.cancel()

    with raises(CancelledError, "quality"):
        quality(checkpoint, tmp_path / "m.pte", progress=stop, cancel=cancel)
    assert not list(tmp_path.iterdir())
