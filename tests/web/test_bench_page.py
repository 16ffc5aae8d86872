"""The page that measures a GPU: the same report as in Python, in a real Chromium."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.harness.results import RESULTS, check_result
from webpte.cli import main
from webpte.measure import bench_model
from webpte.measure.bench_report import markdown


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The page with the smallest decoder only."""
    folder = tmp_path_factory.mktemp("bench") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_model, "DECODERS", bench_model.DECODERS[:1])
        assert main(["bundle", "--bench", "-o", str(folder)]) == 0
    return folder


def download(page):
    with page.expect_download() as event:
        page.get_by_role("button", name="Download JSON").click()
    return json.loads(Path(event.value.path()).read_text("utf-8"))


def assert_same_block(actual, expected):
    """The same text, with numbers whose last digit may differ: JavaScript and Python round ties in two ways."""
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    assert number.sub("#", actual) == number.sub("#", expected)
    pairs = zip(number.findall(actual), number.findall(expected), strict=True)
    assert all(math.isclose(*(float(x.replace(",", "")) for x in pair), rel_tol=0.011) for pair in pairs)


@pytest.mark.slow
def test_page_writes_the_report_of_the_schema(site, server, page):
    server.folders["site"] = site
    page.goto(f"{server.origin}/site/index.html")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#verdict")).to_have_text("Measured, all results are as expected")
    report = download(page)
    check_result(report)
    assert (report["runtime"], report["software"], report["adapter"]["kind"]) == ("browser", True, "CPU")
    assert [check["ok"] for check in report["checks"]] == [True] * 3
    (model,) = report["models"]
    assert model["tokens"] == {"n": 16, "equal": 16, "ok": True}
    assert model["decode"]["min"] <= model["decode"]["median"] <= model["decode"]["max"]
    assert report["probes"]["copy_bytes_per_second"] > 1e6 and report["probes"]["dispatch_seconds"] > 0
    block = page.locator("#block").text_content()
    assert_same_block(block, markdown(report))
    page.get_by_role("button", name="Run again").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#verdict")).to_have_text("Stopped")


def test_page_and_python_write_the_same_markdown(server, page):
    reports = [json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json") if path.stem != "schema"]
    for report in reports:
        report["programs"] = []
        script = "async (report) => (await import('/web/pages/bench/report.js')).markdown(report)"
        assert_same_block(page.evaluate(script, report), markdown(report))


def test_file_is_refused(tmp_path, capsys):
    for line in (["m.pte"], ["--check"], ["--labels", "x"]):
        assert main(["bundle", "--bench", "-o", os.fspath(tmp_path / "site"), *line]) == 1
        assert "InputError" in capsys.readouterr().err
