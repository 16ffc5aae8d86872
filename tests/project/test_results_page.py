"""docs/results.md is the table of the reports in docs/results, which follow their schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from docs.make_results import PAGE, page, reports
from tests.support.harness.results import check_result

ROOT = Path(__file__).parents[2]


def test_results_page_equals_reports():
    assert PAGE.read_text("utf-8") == page(reports()), "run python -m docs.make_results"


@pytest.mark.parametrize("name", reports())
def test_report_follows_the_schema_and_has_no_wrong_results(name):
    report = reports()[name]
    check_result(report)
    assert all(check["ok"] for check in report["checks"]) and all(model["tokens"]["ok"] for model in report["models"])


def test_software_is_marked_and_gpus_come_first():
    software = next(iter(reports().values()))
    gpu = json.loads(json.dumps(software)) | {"software": False}
    rows = [line for line in page({"gpu": gpu, "software": software}).splitlines() if line.startswith("| llvm")]
    assert ["**(software)**" in row for row in rows] == [False, True] * 3


def test_issue_forms_ask_for_the_files():
    forms = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")}
    assert "webpte bench --report" in str(forms["gpu-report"]) and "--bug-report" in str(forms["bug-report"])
    for form in forms.values():
        assert {"name", "description", "body"} <= set(form) and all("type" in part for part in form["body"])
