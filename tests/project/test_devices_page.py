"""docs/devices.md has every suite on every configuration, no failure, and a reason for each skipped test."""

from __future__ import annotations

import pytest

from tests.gpu.test_cases import parameters
from tests.studies.devices.__main__ import main
from tests.studies.devices.page import PAGE, merged, missing, page, read_results
from tests.studies.devices.runs import OUTCOMES, SUITES, suites
from tests.support.harness.cases import Case
from tests.support.harness.configurations import CONFIGURATIONS

WRITE = "run python -m tests.studies devices --write"


def test_devices_page_equals_results():
    assert PAGE.read_text() == page(read_results()), WRITE


def test_devices_results_cover_suites_and_configurations():
    result = read_results()
    assert set(result["devices"]) <= set(CONFIGURATIONS), WRITE
    assert {(row["configuration"], row["suite"]) for row in result["results"]} <= {
        (name, suite) for name in CONFIGURATIONS for suite in suites(name)
    }, WRITE
    if absent := missing(result):
        pytest.skip(f"{len(absent)} are missing, the first is {absent[0]}: {WRITE}")
    assert len({facts["device"] for facts in result["devices"].values()}) == 2


def test_devices_results_no_failures_and_skips_have_reasons():
    for row in read_results()["results"]:
        where = f"{row['configuration']}, {row['suite']}"
        assert row["counts"]["failed"] == 0, where
        assert sum(row["reasons"].values()) == row["counts"]["skipped"] and all(row["reasons"]), where


def test_devices_results_totals_are_current():
    """A few cases may be newer than the page: to write it takes tens of minutes."""
    totals = {suite: set[int]() for suite in SUITES}
    for row in read_results()["results"]:
        totals[row["suite"]].add(sum(row["counts"][outcome] for outcome in OUTCOMES))
    cases = sum(isinstance(case, Case) for case in parameters([], False, False, every=True))  # the others are slow
    assert min(totals["op cases"], default=cases) >= 0.95 * cases, WRITE
    assert totals["catalog"] <= {390}, WRITE


def test_devices_results_replace_older_ones():
    old = {"devices": {"usual": 1, "gone": 2}, "results": [{"configuration": "usual", "suite": "models", "seconds": 1}]}
    result = merged(old, {"name": 3}, {"configuration": "usual", "suite": "op cases", "seconds": 2})
    result = merged(result, {"name": 4}, {"configuration": "browser", "suite": "models", "seconds": 3})
    result = merged(result, {"name": 3}, {"configuration": "usual", "suite": "models", "seconds": 4})
    assert result["devices"] == {"usual": {"name": 3}, "browser": {"name": 4}}
    assert [(row["suite"], row["seconds"]) for row in result["results"]] == [
        ("op cases", 2),
        ("models", 4),
        ("models", 3),
    ]


def test_devices_command_unknown_configuration_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--configurations", "browser,nonsense"])
    assert "nonsense" in capsys.readouterr().err
