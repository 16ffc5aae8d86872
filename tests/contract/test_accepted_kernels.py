"""Kernels of small programs must be in the record of those that Metal's and Direct3D 12's translators have accepted.

`python -m bench.translators --record` translates and compiles the kernels that are not, and renews the record.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.translators import kernels, metal, record
from bench.translators.kernels import GATE, Source
from bench.translators.targets import Result

OLD, NEW = Source("old", "fn old() {}", 64), Source("new", "fn new() {}", 64)


@pytest.mark.parametrize("name", GATE)
def test_kernels_of_small_programs_are_in_the_record(name):
    sources = kernels.of_programs([name])
    assert len(sources) >= 6
    missing = [source.label for source in record.missing(sources)]
    assert not missing, f"not known to compile on Metal and Direct3D 12: run `{record.COMMAND}`\n" + "\n".join(missing)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return the file of a record that has the kernel OLD."""
    monkeypatch.setattr(record, "FILE", tmp_path / "accepted.json")
    record.FILE.write_text('{"checks": "", "kernels": {}}', encoding="utf-8")
    record.renew({OLD: []}, accept)
    return record.FILE


def accept(sources):
    return {(source, "msl"): Result() for source in sources}


def test_record_kernel_with_another_text_or_workgroup_is_missing(file):
    other = [NEW, replace(OLD, text=f"{OLD.text}\n"), replace(OLD, workgroup=128)]
    assert record.missing({source: [] for source in (OLD, *other)}) == other
    assert record.missing({replace(OLD, label="renamed"): []}) == []


def test_record_renewal_translates_only_new_kernels_and_keeps_none_that_is_gone(file):
    results = record.renew({OLD: [], NEW: []}, accept)
    assert list(results) == [(NEW, "msl")]
    assert sorted(record.read().values()) == ["new", "old"]
    record.renew({NEW: []}, accept)
    assert list(record.read().values()) == ["new"]


def test_record_rejected_kernel_is_not_written(file):
    before = file.read_bytes()
    results = record.renew({OLD: [], NEW: []}, lambda sources: {(NEW, "hlsl-fxc"): Result("X3663")})
    assert results == {(NEW, "hlsl-fxc"): Result("X3663")}
    assert file.read_bytes() == before


def test_record_of_other_checks_accepts_nothing(file, tmp_path, monkeypatch):
    changed = tmp_path / "metal.h"
    changed.write_text(f"{metal.HEADER.read_text(encoding='utf-8')}\n", encoding="utf-8")
    monkeypatch.setattr(record, "CHECKS", [changed if path == metal.HEADER else path for path in record.CHECKS])
    assert record.missing({OLD: []}) == [OLD]


def test_record_is_sorted_and_small():
    text = record.FILE.read_text(encoding="utf-8")
    accepted = json.loads(text)["kernels"]
    assert list(accepted) == sorted(accepted)
    assert len(text) < 100_000
