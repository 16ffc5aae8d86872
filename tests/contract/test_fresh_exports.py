"""The archived exports are what the installed exporter writes: some programs are exported in every run."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export import archive, exporting
from tests.support.harness.cases import assert_close
from tests.support.harness.gate import slow_but
from tests.support.models.named import NAMED

FRESH = (
    "add",
    "add_external",
    "add_tied",
    "dynamic_broadcast",
    "half",
    "mixed_kernels",
    "branch",
    "branch_delegated",
    "rotary_7x4x1x32",
    "rotary_13x9x3x64",
    "mtcnn_onet",
    "hf_vit",
    "sdpa_cache_inputs_live",
    "llama_static1",
)
# External weights, sizes that are computed, a branch, halves; other tests export what they test.
IN_THE_GATE = ("add_external", "dynamic_broadcast", "branch_delegated", "half")


@pytest.mark.parametrize("name", slow_but(IN_THE_GATE, FRESH))
def test_fresh_export_equals_the_archived_one(name, tmp_path):
    from tests.support.export.lowering import write

    kept = exporting.export(name)
    entry = NAMED[name]
    write(exporting.load(entry), entry.params, tmp_path)
    fresh = exporting.Exported(name, tmp_path)
    assert len(fresh.steps) == len(kept.steps) > 0
    for new, old in zip(fresh.steps, kept.steps, strict=True):
        assert new.method == old.method
        for a, b in zip((*new.inputs, *new.outputs), (*old.inputs, *old.outputs), strict=True):
            assert a.dtype == b.dtype
            assert_close(a, b, 1e-6, 1e-6, name)
    with webpte.load(fresh.path, data=fresh.data) as new_program, webpte.load(kept.path, data=kept.data) as old_program:
        for step in fresh.sequences[0]:
            new_outputs = new_program.method(step.method).run(step.inputs)
            old_outputs = old_program.method(step.method).run(step.inputs)
            assert all(np.array_equal(a, b) for a, b in zip(new_outputs, old_outputs, strict=True))


def test_archive_round_trips_packed_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "ARCHIVE", tmp_path / "archive")
    (tmp_path / "archive").mkdir()
    folder = tmp_path / "cache" / "key"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside" / "program.pte").write_bytes(b"program")
    archive.pack(folder, tmp_path / "archive" / "key.zip")
    again = tmp_path / "elsewhere" / "key"
    assert archive.restore(again) and (again / "inside" / "program.pte").read_bytes() == b"program"
    assert not archive.restore(tmp_path / "elsewhere" / "other")
    packed = (tmp_path / "archive" / "key.zip").read_bytes()
    archive.pack(again, tmp_path / "archive" / "key.zip")
    assert (tmp_path / "archive" / "key.zip").read_bytes() == packed
