"""docs/models.md has the outcomes of each ExecuTorch release that tests/studies/versions/results.json records."""

from __future__ import annotations

from tests.studies.versions.page import DOCS, HEADING, PROGRAMS, RESULTS, known, record, section
from tests.studies.versions.releases import RELEASES
from tests.studies.versions.running import Kind, Outcome, tolerance
from tests.support.harness.markdown_tables import parts

WRITE = "run python -m tests.studies versions --write"


def test_versions_page_equals_recorded_results():
    assert parts(DOCS.read_text(), HEADING)[1] == section(known()), WRITE


def test_versions_page_covers_releases_and_programs():
    assert {version: [*row] for version, row in known().items()} == {version: [*PROGRAMS] for version in RELEASES}, (
        WRITE
    )


def test_versions_results_correct_or_with_reason():
    for row in known().values():
        for name, result in row.items():
            assert result.kind is not Kind.WRONG, name
            if result.kind in (Kind.RIGHT, Kind.ON_CPU):
                assert result.error is not None and result.error <= tolerance(name), name
            else:
                assert result.reason, name


def test_results_are_read_as_they_were_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.studies.versions.page.RESULTS", tmp_path / RESULTS.name)
    rows = {"1.0.1": {"mlp": Outcome(Kind.RIGHT, 1.5e-7), "cnn": Outcome(Kind.REFUSED, None, "why")}}
    record(rows)
    assert known() == rows
