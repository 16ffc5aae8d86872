"""Calibration without torch: blocks run on the device, and weights are rounded for their inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.support.harness.errors import raises
from tests.unit.test_build_program import SIZES, checkpoint  # noqa: F401 - a fixture
from webpte import CancelToken
from webpte.builder import build_program
from webpte.builder.blocks import FLOATS, BlockPrograms
from webpte.builder.context import choose_sizes
from webpte.builder.recipe import ProgramWeights
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.errors import CancelledError
from webpte.progress import Progress

OPTIONS: dict[str, Any] = {**SIZES, "embedding": "none", "lm_head": "4"}


def logits(path: Path, rows: np.ndarray) -> np.ndarray:
    """Return the logits of the last token of each row."""
    with webpte.load(path) as program:
        forward = program.method("forward")
        return np.array([forward(row[None], np.array([0])) for row in rows])


def test_calibration_reduces_the_error_of_logits(checkpoint: Path, tmp_path: Path) -> None:  # noqa: F811
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and looked at the dog. " * 6)
    paths = {
        "f32": build_program(checkpoint, tmp_path / "f32.pte", quantize=None, **SIZES),
        "plain": build_program(checkpoint, tmp_path / "plain.pte", quantize="4w", **OPTIONS),
        "calibrated": build_program(checkpoint, tmp_path / "calibrated.pte", quantize="4w", calibrate=text, **OPTIONS),
    }
    tokens = np.random.default_rng(3).integers(3, 90, (8, 20))
    results = {name: logits(path, tokens) for name, path in paths.items()}
    errors = {name: float(((results[name] - results["f32"]) ** 2).sum()) for name in results}
    assert paths["plain"].stat().st_size == paths["calibrated"].stat().st_size
    assert errors["calibrated"] < errors["plain"]


def test_calibration_blocks_equal_whole_program(checkpoint: Path, tmp_path: Path) -> None:  # noqa: F811
    source = read_checkpoint(checkpoint)
    tokens = np.arange(5, 22)
    with BlockPrograms(source, choose_sizes(source, **SIZES)) as blocks:
        (piece,) = blocks.pieces([list(tokens)], FLOATS, ProgramWeights(source))
        for number in range(2):
            block, units = blocks.float_block(number)
            piece.hidden, *inputs = block(piece)
            assert blocks.units(number) == units
            assert [len(unit) for unit in units] == [3, 1, 2, 1]
            assert [np.shape(rows)[1] for rows in inputs] == [17] * 4
        rows = blocks.logits(blocks.head(FLOATS, ProgramWeights(source)), piece.hidden)
    expected = logits(build_program(checkpoint, tmp_path / "m.pte", quantize=None, **SIZES), tokens[None])
    np.testing.assert_allclose(rows[-1], expected.reshape(-1), rtol=1e-4, atol=1e-4)


def test_build_cancelled_during_calibration_leaves_no_files(checkpoint: Path, tmp_path: Path) -> None:  # noqa: F811
    cancel = CancelToken()
    stages: list[str] = []

    def stop(event: Progress) -> None:
        stages.append(event.stage)
        if event.stage == "calibrate" and event.done:
            cancel.cancel()

    with raises(CancelledError, "calibrate"):
        build_program(
            checkpoint, tmp_path / "m.pte", quantize="4w", calibrate=True, progress=stop, cancel=cancel, **SIZES
        )
    assert set(stages) == {"read", "calibrate"} and list(tmp_path.iterdir()) == []
