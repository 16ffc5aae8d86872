"""A page cuts long calls into several submits, and results keep their bits."""

from __future__ import annotations

import numpy as np
import pytest

from .calls import OPEN, run
from .test_programs import shapes_of

COUNT = """() => {
  const { submit } = GPUQueue.prototype;
  globalThis.submits = 0;
  GPUQueue.prototype.submit = function (buffers) {
    if (buffers.length) globalThis.submits++;
    return submit.call(this, buffers);
  };
}"""


@pytest.fixture
def results(bundled, server, page):
    """Return the results of two calls of a language model, and the submits of each, with a limit in milliseconds."""
    exported, server.folders["site"] = bundled("llama_4w_emb4", shapes_of)
    page.evaluate(COUNT)

    def call(limit):
        page.evaluate(OPEN, [f"{server.origin}/site/", {} if limit is None else {"maxSubmitMs": limit}])
        result, submits = [], []
        for step in exported.sequences[0][:2]:
            before = page.evaluate("globalThis.submits")
            result += run(page, step.inputs)
            submits.append(page.evaluate("globalThis.submits") - before)
        return result, submits

    return call


@pytest.mark.slow
def test_page_split_calls_equal_unsplit_calls(results):
    whole, submits = results(None)  # Chromium's GPU here is a software device, which has no limit
    assert submits == [2, 1]  # the first call after loading also resets the state
    for limit in (1e-6, 2):
        split, submits = results(limit)
        assert limit == 2 or min(submits) > 15  # every dispatch is a submit
        for array, expected in zip(split, whole, strict=True):
            np.testing.assert_array_equal(array, expected)
