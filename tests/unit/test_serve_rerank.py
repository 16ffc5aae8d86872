"""`/v1/rerank`, `/v2/rerank` and `/v1/score` over a backend without a worker: the order, the scores, every error."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.harness.stand_in import Asked, StandIn
from tests.support.models.tokenizers import byte_level
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.messages import ModelInfo

QUERY = {"query": "ab", "documents": ["c", {"text": "defg"}, "hi"]}


class CharacterTokenizer:
    """A token for each character of a pair."""

    def encode(self, pairs: list[tuple[str, str]]) -> list[list[int]]:
        return [[ord(character) for character in first + second] for first, second in pairs]


class ScoringBackend(StandIn):
    """The logit of a pair is the number of its tokens, less 4."""

    async def embed(
        self, model: str, rows: Sequence[Sequence[int]], deadline: float | None = None, *_: Any
    ) -> np.ndarray:
        return np.array([[len(row) - 4] for row in rows], np.float32)


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.setattr("webpte.serve.served_models.read_pairs", lambda path: CharacterTokenizer())

    def run(path: str, body: Any, **config: Any) -> Asked:
        async def whole() -> Asked:
            backend = ScoringBackend(tmp_path, byte_level())
            backend.models["ranker"] = ModelInfo("ranker", "", "reranker", 16, 0, 1, 4, "f", 1)
            application = app(backend, Config(**config))
            async with application.router.lifespan_context(application):
                return await Asked(application, path, body).answer()

        return asyncio.run(whole())

    return run


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked_by_their_scores(ask, path):
    response = ask(path, QUERY).json
    assert [result["index"] for result in response["results"]] == [1, 2, 0] and response["model"] == "ranker"
    scores = [result["relevance_score"] for result in response["results"]]
    np.testing.assert_allclose(scores, [logistic(2), logistic(0), logistic(-1)], atol=1e-6)
    assert response["usage"] == {"prompt_tokens": 13, "total_tokens": 13}


def test_results_are_limited_and_have_their_texts(ask):
    (best,) = ask("/v1/rerank", QUERY | {"top_n": 1, "return_documents": True, "model": "ranker"}).json["results"]
    assert best["document"] == {"text": "defg"}
    assert len(ask("/v1/rerank", QUERY | {"top_n": 9}).json["results"]) == 3


@pytest.mark.parametrize(
    ("first", "second", "lengths"),
    [("ab", ["c", "def"], [3, 5]), (["c", "def"], "ab", [3, 5]), (["a", "bc"], ["d", "ef"], [2, 4]), ("a", "b", [2])],
)
def test_scores_are_those_of_the_pairs(ask, first, second, lengths):
    response = ask("/v1/score", {"text_1": first, "text_2": second}).json
    assert [entry["index"] for entry in response["data"]] == list(range(len(lengths)))
    scores = [entry["score"] for entry in response["data"]]
    np.testing.assert_allclose(scores, [logistic(length - 4) for length in lengths], atol=1e-6)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/rerank", {"documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["a", 3]}, "documents[1]"),
        ("/v1/rerank", QUERY | {"top_n": 0}, "top_n"),
        ("/v1/rerank", QUERY | {"model": "stand-in"}, "model"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_2"),
        ("/v1/score", {"text_1": [], "text_2": "a"}, "text_1"),
        ("/v1/embeddings", {"model": "ranker", "input": "a"}, "model"),
    ],
)
def test_wrong_request_names_its_field(ask, path, body, param):
    response = ask(path, body)
    assert (response.status, response.json["error"]["param"]) == (400, param), response.json


def test_reranker_is_listed_with_its_kind(ask):
    listed = {model["id"]: model for model in ask("/v1/models", None).json["data"]}
    assert listed["ranker"]["kind"] == "reranker" and "dimensions" not in listed["ranker"]
    assert ask("/api/show", {"model": "ranker"}).json["capabilities"] == []
