"""The page of any other program: a field for every input, and what comes out."""

from __future__ import annotations

import io

import numpy as np
import pytest
from playwright.sync_api import expect

from .fake_pages import is_ready, opened

INFO = """{
  methods: {
    forward: {
      inputs: [{ name: "x", kind: "tensor", dtype: "f32", dims: [4, 3] }, { name: "count", kind: "symint" }],
      outputs: [{ name: "sums", kind: "tensor" }],
    },
    other: {
      inputs: [{ name: "position", kind: "tensor", dtype: "i64", dims: [2] }],
      outputs: [{ name: "y", kind: "tensor" }],
    },
  },
  shapes: { forward: [[[4, 3], []], [[2, 3], []]], other: [[[2]]] },
}"""
ECHO = f"{{ info: {INFO}, outputs: ([tensor]) => [{{ ...tensor, dtype: 'f32' }}] }}"


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def upload(page, array, name="x.npy"):
    page.select_option("fieldset select", "file")
    page.set_input_files("#inputs input[type=file]", {"name": name, "mimeType": "", "buffer": npy(array)})
    page.click("#run")


def sent_input(page):
    """The first argument of the last run."""
    return page.evaluate(
        "(({ data, dims }) => ({ data: Array.from(data, Number), dims }))(model.requests.at(-1).inputs[0])"
    )


def done(page):
    expect(page.locator("#time")).to_contain_text("ms")


def test_inputs_can_be_filled_shaped_and_typed(browser):
    with opened(browser, "program", ECHO) as page:
        is_ready(page)
        expect(page.locator("legend")).to_have_text(["x: f32, 4 × 3", "count: integer"])
        page.keyboard.press("Enter")  # "Run" has the focus
        done(page)
        assert len(set(sent_input(page)["data"])) == 12
        page.select_option("fieldset select", "ones")
        page.select_option("#shapes", "1")
        page.fill("fieldset input[type=number]", "5")
        page.click("#run")
        expect(page.locator("#outputs h2")).to_have_text("sums: f32, 2 × 3")
        assert sent_input(page) == {"data": [1] * 6, "dims": [2, 3]}
        assert page.evaluate("model.requests.at(-1).inputs[1]") == 5
        page.select_option("fieldset select", "typed")
        page.fill("fieldset textarea", "[[1, 2.5, -3], [nan, inf, 6]]")
        page.click("#run")
        expect(page.locator("#outputs .numbers").last).to_have_text("1, 2.5, -3, NaN, Infinity, 6")
        expect(page.locator("#outputs dl")).to_contain_text("NaN or infinite2")
        expect(page.locator("#outputs dl")).to_contain_text("minimum-3")


def test_wrong_numbers_are_refused_in_words(browser):
    with opened(browser, "program", ECHO) as page:
        is_ready(page)
        page.select_option("fieldset select", "typed")
        for typed, words in {
            "1, two": 'expected numbers, got "two"',
            "1 2": "expected 12 numbers, or 1 for all, got 2",
        }.items():
            page.fill("fieldset textarea", typed)
            page.click("#run")
            expect(page.get_by_role("alert")).to_contain_text(f"x: {words}")
        page.select_option("fieldset select", "file")
        page.click("#run")
        expect(page.get_by_role("alert")).to_contain_text("expected a .npy file, got none")
        assert page.evaluate("model.requests.length") == 0


def test_form_page_method_choice_and_run_errors(browser):
    with opened(browser, "program", f"{{ info: {INFO}, failures: [['shape', 'no plan for 9']] }}") as page:
        is_ready(page)
        page.select_option("#method", "other")
        expect(page.locator("legend")).to_have_text(["position: i64, 2"])
        page.click("#run")
        expect(page.get_by_role("alert")).to_contain_text("no plan for 9")
        page.click("#run")
        done(page)
        expect(page.get_by_role("alert")).to_have_count(0)
        assert sent_input(page)["data"] == [0, 0]  # a position is not random
        assert page.evaluate("model.requests.at(-1).method") == "other"


def test_npy_files_are_read_and_written(browser):
    arrays = [np.arange(12).reshape(4, 3).astype(dtype) for dtype in ("f4", "f8", "i2", "i4", "i8", "i1", "u1", "?")]
    with opened(browser, "program", ECHO) as page:
        is_ready(page)
        for array in arrays:
            upload(page, array)
            done(page)
            expect(page.locator("#error")).to_be_hidden()
            assert sent_input(page) == {"data": array.astype("f8").ravel().tolist(), "dims": [4, 3]}
            with page.expect_download() as download:
                page.get_by_role("button", name="Download as .npy").click()
            np.testing.assert_array_equal(np.load(download.value.path()), array.astype("f4"))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 4), "f4"), "x.npy: expected shape 4 × 3, got 3 × 4"),
        (np.zeros((4, 3), "c8"), "dtype <c8 is not supported"),
        (np.asfortranarray(np.zeros((4, 3))), "Fortran order"),
    ],
)
def test_form_page_unsuitable_files_are_refused(browser, array, words):
    with opened(browser, "program", ECHO) as page:
        is_ready(page)
        upload(page, array)
        expect(page.get_by_role("alert")).to_contain_text(words)
