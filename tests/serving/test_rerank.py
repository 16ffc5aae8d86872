"""A reranker as clients see it: a real process, a real worker, real HTTP."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from tests.support.harness.serving import Running
from tests.support.models.rerankers import exported_reranker
from webpte.embed import Reranker

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

QUERY = "the cat sat"
DOCUMENTS = ["dogs run", "the cat sat on a mat", "a mat " * 40]


def test_server_has_the_scores_of_python():
    program = exported_reranker("bert") / "model.pte"
    with Reranker.load(program) as reranker:
        expected = reranker(QUERY, DOCUMENTS)
    with Running(f"ranker={program}") as running, httpx.Client(base_url=running.url, timeout=240) as client:
        ranked = client.post("/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS}).json()["results"]
        scored = client.post("/v1/score", json={"text_1": QUERY, "text_2": DOCUMENTS}).json()["data"]
    assert [result["index"] for result in ranked] == np.argsort(-expected, kind="stable").tolist()
    np.testing.assert_allclose([entry["score"] for entry in scored], expected, atol=1e-6)
