"""The page that checks a GPU: which operators are right, which kernel is not, and a report to send."""

from __future__ import annotations

import json

import numpy as np
from playwright.sync_api import expect

from .fake_pages import is_ready, opened

OPS = ("add", "gelu", "softmax")


def fake(outputs: str, count: int = 1, more: str = "") -> str:
    """Return a bundle with `count` programs for each op; every program uses a kernel of its op and one that all use."""
    data = np.array([1, 2], "<f4").tobytes()
    border = {"dtype": "f32", "dims": [2], "file": "data", "offset": 0, "bytes": 8}
    programs = [
        {
            "op": op,
            "name": f"{op} {number}",
            "method": op,
            "inputs": [border],
            "outputs": [border],
            "atol": 1e-5,
            "rtol": 0,
        }
        for op in OPS
        for number in range(count)
    ]
    plans = {
        op: json.dumps({"kernels": [{"label": f"k_{op}", "sha256": op}, {"label": "all", "sha256": "all"}]})
        for op in OPS
    }
    omitted = [{"op": "sort", "name": "rows", "reason": "a CPU kernel"}]
    info = {
        "omitted": omitted,
        "webpte": "0.1.0",
        "methods": {op: {"variants": [{"plan": op}]} for op in OPS},
        "check": programs,
    }
    return f"""{{
      info: {json.dumps(info)}, outputs: {outputs}, {more}
      files: {{
        data: Uint8Array.from({list(data)}),
        ...Object.fromEntries(Object.entries({json.dumps(plans)}).map(
          ([op, text]) => [op, new TextEncoder().encode(text)])),
      }},
    }}"""


RIGHT = "([one]) => [{ ...one, dtype: 'f32' }]"
WRONG = "([one], method) => [{ ...one, data: method === 'gelu' ? [1, 2.5] : one.data }]"


def report(page):
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the report").click()
    return json.loads(download.value.path().read_text())


def test_check_page_success_reports_device_and_results(browser):
    with opened(browser, "check", fake(RIGHT, 2)) as page:
        is_ready(page)
        expect(page.locator("#verdict")).to_have_text("All 6 programs passed")
        expect(page.locator("#rows tr")).to_have_count(3)
        expect(page.locator("#omitted")).to_have_text("Not supported in a page: sort/rows.")
        expect(page.locator("#rows tr").first).to_contain_text("✓ passed2 of 20.0e+0")
        actual = report(page)
        assert (actual["programs"], actual["run"], actual["failed"], actual["suspects"]) == (6, 6, 0, [])
        assert actual["adapter"]["name"] == "ACME GPU 9000"
        assert "Chrome" in actual["browser"]
        assert [result["ok"] for result in actual["results"]] == [True] * 6


def test_check_page_wrong_kernel_is_named(browser):
    with opened(browser, "check", fake(WRONG)) as page:
        is_ready(page)
        expect(page.locator("#verdict")).to_have_text("1 of 3 programs failed")
        expect(page.locator("#suspects")).to_have_text("Kernels that only failing programs use: k_gelu")
        expect(page.locator("#rows .failed")).to_contain_text("gelu 0: output 0: element 1: expected 2, got 2.5")
        page.get_by_label("Failures only").check()
        expect(page.locator("#rows tr:visible")).to_have_count(1)
        actual = report(page)
        assert actual["suspects"] == ["k_gelu"]
        [wrong] = [result for result in actual["results"] if not result["ok"]]
        assert (wrong["op"], wrong["error"]) == ("gelu", 0.5)


def test_nan_shape_and_errors_are_failures(browser):
    outputs = """([one], method) => [{
      add: { data: [NaN, 2], dims: [2] }, gelu: { data: [1], dims: [1] }, softmax: { data: [1, Infinity], dims: [2] },
    }[method]]"""
    with opened(browser, "check", fake(outputs)) as page:
        expect(page.locator("#verdict")).to_have_text("3 of 3 programs failed")
        expect(page.locator("#rows")).to_contain_text("element 0: expected 1, got NaN")
        expect(page.locator("#rows")).to_contain_text("expected shape 2, got 1")
        expect(page.locator("#rows")).to_contain_text("element 1: expected 2, got Infinity")
        assert {result["error"] for result in report(page)["results"]} == {"Infinity"}
    with opened(browser, "check", fake(RIGHT, more="failures: [['unsupported', 'needs f16']],")) as page:
        expect(page.locator("#verdict")).to_have_text("1 of 3 programs failed")
        expect(page.locator("#rows .failed")).to_contain_text("needs f16")


def test_check_page_stops_and_runs_again(browser):
    slow = "([one]) => new Promise((done) => setTimeout(() => done([{ ...one }]), 300))"
    with opened(browser, "check", fake(slow, 100)) as page:
        is_ready(page)
        expect(page.locator("#verdict")).to_contain_text("of 300 programs: ")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#verdict")).to_contain_text("Stopped after")
        expect(page.locator("#announcer")).to_contain_text("none failed")
        assert report(page)["run"] < 300
        page.evaluate("() => { fake.outputs = ([one]) => [one]; }")
        page.get_by_role("button", name="Run again").click()
        expect(page.locator("#verdict")).to_have_text("All 300 programs passed")
