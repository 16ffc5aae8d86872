"""docs/zoo.md has every network in every mode, with counts that are those of its rows."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.support.harness.markdown_tables import parts
from tests.zoo import record
from tests.zoo.index import MODES, networks
from tests.zoo.network_page import HEADING, NOT_RUN, SHAPES, SHORT, section, tables
from tests.zoo.outcome import Kind, Outcome
from tests.zoo.page import DOCS
from tests.zoo.record import read

WRITE = "run python -m tests.zoo --networks --write"
KINDS = {short: kind for kind, short in SHORT.items()} | {NOT_RUN: NOT_RUN}
COUNTED = (*Kind, NOT_RUN)


@pytest.fixture(scope="module")
def page():
    return tables(DOCS.read_text())


def cells(page):
    """Return a kind by network, mode and whether shapes are dynamic."""
    return {
        (network, mode, dynamic): KINDS.get(text, Kind.RIGHT)
        for network, _, *row in page["errors"]
        for mode, cell in zip(MODES, row, strict=True)
        for dynamic, text in zip(SHAPES, cell.split(" / "), strict=True)
    }


def test_networks_page_lists_programs(page):
    assert {(p.network, p.mode, p.dynamic) for p in networks().values()} == set(cells(page)), WRITE


def test_networks_page_modes_equal_programs_and_tolerances(page):
    assert {row[0]: float(row[3]) for row in page[""]} == MODES, WRITE


def test_networks_page_counts_equal_cells(page):
    shapes = {name: dynamic for dynamic, name in SHAPES.items()}
    counts = Counter((mode, dynamic, kind) for (_, mode, dynamic), kind in cells(page).items())
    *rows, total = page["counts"]
    for mode, name, programs, *numbers, _ in rows:
        assert [int(n) for n in numbers] == [counts[mode, shapes[name], kind] for kind in COUNTED], WRITE
        assert int(programs) == sum(map(int, numbers)), WRITE
    assert [row[:2] for row in rows] == [(mode, name) for mode in MODES for name in SHAPES.values()], WRITE
    assert int(total[2]) == len(networks()), WRITE
    assert list(map(int, total[3:-1])) == [sum(n for (*_, k), n in counts.items() if k == kind) for kind in COUNTED], (
        WRITE
    )


def test_networks_page_has_no_wrong_results_or_crashes(page):
    assert not {Kind.WRONG, Kind.CRASHED} & set(cells(page).values())


def test_networks_page_equals_recorded_results():
    assert parts(DOCS.read_text(), HEADING)[1] == section(read()), WRITE


def test_recorded_delegates_are_those_of_the_mode():
    for name, outcome in read().items():
        if outcome.kind is Kind.RIGHT:
            assert (outcome.delegates > 0) == (networks()[name].mode != "portable"), name


def test_record_keeps_results_until_their_export_changes(tmp_path, monkeypatch):
    first, second, third, *_ = networks()
    path = tmp_path / "results.json"
    path.write_text("{}")
    monkeypatch.setattr(record, "RESULTS", path)
    record.add({name: Outcome(name, Kind.RIGHT, error=1e-7) for name in (first, second)})
    results = json.loads(path.read_text())
    results[second][0] = "another key"
    path.write_text(json.dumps(results | {"no-network": results[first]}))
    record.add({third: Outcome(third, Kind.EXPORTER, "RuntimeError: no")})
    assert read() == {
        first: Outcome(first, Kind.RIGHT, error=1e-7),
        third: Outcome(third, Kind.EXPORTER, "RuntimeError: no"),
    }


def test_networks_page_refusals_have_reasons(page):
    names = {(p.network, p.mode, p.dynamic): name for name, p in networks().items()}
    for kind in (Kind.EXPORTER, Kind.REFUSED):
        refused = {names[key] for key, result in cells(page).items() if result is kind}
        reasons = {row[0]: row[1].strip("`") for row in page.get(f"networks {kind}", ())}
        assert set(reasons) == refused and all(reasons.values()), WRITE


def test_section_of_outcomes_can_be_read_again():
    outcomes = {name: Outcome(name, Kind.RIGHT, error=1e-7) for name in networks()}
    first, last, *_ = outcomes
    outcomes[first] = Outcome(first, Kind.REFUSED, "UnsupportedError: no")
    del outcomes[last]
    result = tables(f"# The zoo\n\n{section(outcomes)}")
    assert Counter(cells(result).values()) == {Kind.RIGHT: len(networks()) - 2, Kind.REFUSED: 1, NOT_RUN: 1}
    assert result[f"networks {Kind.REFUSED}"] == [(first, "`UnsupportedError: no`")]
    assert section(outcomes).startswith(HEADING)


def test_networks_are_enough_of_each_kind():
    result = networks().values()
    assert len({p.network for p in result}) >= 11
    assert {(p.mode, p.dynamic) for p in result} == {(mode, dynamic) for mode in MODES for dynamic in (False, True)}
