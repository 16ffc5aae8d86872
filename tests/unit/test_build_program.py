"""Building programs without torch: options, files, messages; no package of the exporter is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.models.tiny_checkpoint import write_checkpoint
from webpte import CancelToken, container
from webpte.builder import build_program, export_llm
from webpte.builder.options import LLMOptions
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.errors import CancelledError, UnsupportedError
from webpte.progress import Progress

SIZES: dict[str, Any] = {"max_context": 40, "max_tokens": 24}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


def ops(path: Path) -> list[str]:
    with container.MappedFile(path) as file:
        (delegate,) = container.parse_program(file).methods[0].delegates
        return [call.name for call in container.parse_vulkan(delegate.blob).calls]


def test_build_program_without_torch(checkpoint: Path, tmp_path: Path) -> None:
    before = {name for name in ("torch", "executorch", "transformers") if name in sys.modules}
    events: list[Progress] = []
    build_program(checkpoint, tmp_path / "m.pte", quantize="4w", **SIZES, progress=events.append)
    assert {name for name in ("torch", "executorch", "transformers") if name in sys.modules} == before
    assert {path.name for path in tmp_path.iterdir()} == {"m.pte", "m.tokenizer.json"}
    assert {event.stage for event in events} == {"read", "build"} and events[-1].done == events[-1].total
    assert ops(tmp_path / "m.pte").count("et_vk.linear_q4gsw.default") == 14


def test_build_program_same_checkpoint_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        build_program(checkpoint, tmp_path / f"{name}.pte", **SIZES)
    assert (tmp_path / "a.pte").read_bytes() == (tmp_path / "b.pte").read_bytes()


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"quantize": None}, {"aten.linear.default": 15, "aten.embedding.default": 1}),
        ({"quantize": "8w", "embedding": "4,32"}, {"aten._weight_int8pack_mm.default": 15}),
        ({"quantize": "4w", "embedding": "4,32", "lm_head": "4"}, {"et_vk.linear_q4gsw.default": 15}),
        (
            {"quantize": "8da4w", "lm_head": "4", "embedding": "none"},
            {"torchao.choose_qparams_affine.default": 15, "et_vk.linear_dq8ca_q4gsw.default": 15},
        ),
        ({"quantize": "4w", "embedding": "4,32"}, {"et_vk.embedding_q4gsw.default": 1}),
    ],
)
def test_formats_choose_the_ops(
    options: dict[str, Any], counts: dict[str, int], checkpoint: Path, tmp_path: Path
) -> None:
    names = ops(build_program(checkpoint, tmp_path / "m.pte", **options, **SIZES))
    assert {name: names.count(name) for name in counts} == counts


def test_build_program_tied_f32_head_stored_once(checkpoint: Path, tmp_path: Path) -> None:
    path = build_program(checkpoint, tmp_path / "m.pte", quantize=None, **SIZES)
    with container.MappedFile(path) as file:
        named = container.parse_program(file).named_data
    assert "tok_embeddings.weight" in named and "output.weight" not in named


def test_program_metadata_equal_options(checkpoint: Path, tmp_path: Path) -> None:
    path = build_program(checkpoint, tmp_path / "m.pte", **SIZES)
    with container.MappedFile(path) as file:
        methods = {method.name: method.values for method in container.parse_program(file).methods}
    assert methods["get_max_context_len"] == (container.IntValue(40),)
    assert methods["get_max_seq_len"] == (container.IntValue(24),)
    assert methods["get_eos_ids"] == (container.IntValue(2),)


def test_build_program_cancelled_leaves_no_files(checkpoint: Path, tmp_path: Path) -> None:
    cancel = CancelToken()

    def stop(event: Progress) -> None:
        if event.done:
            cancel.cancel()

    with pytest.raises(CancelledError):
        build_program(checkpoint, tmp_path / "m.pte", **SIZES, progress=stop, cancel=cancel)
    assert list(tmp_path.iterdir()) == []


def test_build_program_without_tokenizers_names_package(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # as if it were not installed
    with raises(UnsupportedError, code="missing_package"):
        build_program(checkpoint, tmp_path / "m.pte", **SIZES)
    assert not list(tmp_path.iterdir())


def test_calibration_is_the_default_of_named_formats(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[LLMOptions] = []
    monkeypatch.setattr(
        "webpte.builder.llm._build", lambda checkpoint, path, options, *rest, **more: calls.append(options)
    )
    for options in ({"quantize": "4w"}, {"quantize": "checkpoint"}, {}, {"quantize": "8w", "calibrate": False}):
        export_llm(checkpoint, tmp_path / "m.pte", **options)
    assert [call.calibrate for call in calls] == [True, False, False, False]


def test_weight_read_in_parts_equals_whole(checkpoint: Path) -> None:
    weights = read_checkpoint(checkpoint).weights
    for name in ("tok_embeddings.weight", "layers.1.attention.wq.weight", "layers.1.feed_forward.w2.weight"):
        assert np.array_equal(np.concatenate(list(weights.parts(name, 7))), weights.read(name))
