"""The networks' CSV has every network in every mode, and docs/zoo.md the counts of its rows."""

from __future__ import annotations

import json

import pytest

from tests.studies.zoo import record
from tests.studies.zoo.index import MODES, networks
from tests.studies.zoo.network_page import HEAD, NETWORKS, NOT_RUN, SHAPES, rows, summary
from tests.studies.zoo.outcome import Kind, Outcome
from tests.studies.zoo.page import PAGE, read_csv, to_csv, with_part
from tests.studies.zoo.record import read

WRITE = "run python -m tests.studies zoo --networks --write"


@pytest.fixture(scope="module")
def known():
    return read_csv(NETWORKS)


def test_networks_file_equals_recorded_results():
    assert NETWORKS.read_text(encoding="utf-8") == to_csv(HEAD, rows(read())), WRITE


def test_networks_page_counts_equal_rows(known):
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_part(text, "networks", summary(known)), WRITE


def test_networks_file_lists_programs_once(known):
    listed = [(row["network"], row["mode"], row["shapes"]) for row in known]
    assert listed == [(p.network, p.mode, SHAPES[p.dynamic]) for p in networks().values()], WRITE


def test_networks_summary_has_modes_with_their_tolerances(known):
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in summary(known).splitlines()[2:]]
    assert {line[0]: float(line[2]) for line in lines[:-1]} == MODES
    assert sum(int(line[3]) for line in lines[:-1]) == int(lines[-1][3]) == len(networks())


def test_networks_have_no_wrong_results_or_crashes(known):
    assert not {row["outcome"] for row in known} & {Kind.WRONG, Kind.CRASHED}


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


def test_networks_refusals_have_messages(known):
    assert all(row["message"] for row in known if row["outcome"] in (Kind.EXPORTER, Kind.REFUSED))


def test_network_row_without_result_is_not_run():
    first = next(iter(networks()))
    result = rows({first: Outcome(first, Kind.REFUSED, "UnsupportedError: no")})
    assert (result[0]["outcome"], result[0]["message"]) == (Kind.REFUSED, "UnsupportedError: no")
    assert (result[1]["outcome"], result[1]["error"]) == (NOT_RUN, "") and len(result) == len(networks())


def test_networks_are_enough_of_each_kind():
    result = networks().values()
    assert len({p.network for p in result}) >= 11
    assert {(p.mode, p.dynamic) for p in result} == {(mode, dynamic) for mode in MODES for dynamic in (False, True)}
