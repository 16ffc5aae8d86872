"""`/v1/rerank`, `/v2/rerank` and `/v1/score`: documents in the order of their scores for a query, and scores of pairs.

The first two have the fields of Jina's and of Cohere's API.
"""

from __future__ import annotations

import secrets
from typing import Annotated, ClassVar, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict  # pydantic reads the one of typing only from Python 3.12 on

from ..embed.pair_tokenizer import probabilities
from .bodies import RequestBody, read_body
from .clients import run_in_thread
from .config import MAX_INPUTS
from .errors import ApiError
from .openai.generation import at_most
from .responses import JsonResponse
from .service import Service


class DocumentText(RequestBody):
    """A document as an object, of which the text is read."""

    ignored = ("title", "id", "metadata")
    text: str


Documents = Annotated[list[str | DocumentText], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
Texts = str | Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]


class RerankRequest(RequestBody):
    """`POST /v1/rerank` and `POST /v2/rerank`."""

    kind = "reranker"
    ignored: ClassVar[tuple[str, ...]] = ("max_tokens_per_doc", "max_chunks_per_doc", "priority", "truncation", "user")
    model: str | None = None
    query: str
    documents: Documents
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False


class ScoreRequest(RequestBody):
    """`POST /v1/score`. One text of a side is paired with each of the other side."""

    kind = "reranker"
    ignored: ClassVar[tuple[str, ...]] = ("truncate_prompt_tokens", "user")
    model: str | None = None
    text_1: Texts
    text_2: Texts


class RerankUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class RankedText(TypedDict):
    text: str


class RankedDocument(TypedDict):
    index: int  # in the request
    relevance_score: float  # from 0 to 1
    document: NotRequired[RankedText]


class RerankResponse(TypedDict):
    id: str
    object: Literal["list"]
    model: str
    results: list[RankedDocument]  # the best first
    usage: RerankUsage


class ScoreEntry(TypedDict):
    object: Literal["score"]
    index: int
    score: float  # from 0 to 1


class ScoreResponse(TypedDict):
    id: str
    object: Literal["list"]
    model: str
    data: list[ScoreEntry]
    usage: RerankUsage


async def rerank(request: Request) -> Response:
    """Handle `POST /v1/rerank` and `POST /v2/rerank`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, RerankRequest)
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    at_most("documents", len(texts), service.config.max_inputs, "max_inputs")
    model, scores, usage = await _scores(request, body.model, [(body.query, text) for text in texts])
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n]
    results: list[RankedDocument] = [{"index": index, "relevance_score": scores[index]} for index in order]
    if body.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    content: RerankResponse = {
        "id": f"rerank-{secrets.token_hex(12)}",
        "object": "list",
        "model": model,
        "results": results,
        "usage": usage,
    }
    return await run_in_thread(request, JsonResponse, content)


async def score(request: Request) -> Response:
    """Handle `POST /v1/score`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, ScoreRequest)
    first = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    second = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    count = max(len(first), len(second))
    at_most("text_2", count, service.config.max_inputs, "max_inputs")
    if {len(first), len(second)} - {1, count}:
        raise ApiError(
            400, f"text_2: expected 1 or {len(first)} texts, as many as text_1, got {len(second)}", param="text_2"
        )
    pairs = list(zip(_repeated(first, count), _repeated(second, count), strict=True))
    model, scores, usage = await _scores(request, body.model, pairs)
    content: ScoreResponse = {
        "id": f"score-{secrets.token_hex(12)}",
        "object": "list",
        "model": model,
        "data": [{"object": "score", "index": index, "score": value} for index, value in enumerate(scores)],
        "usage": usage,
    }
    return await run_in_thread(request, JsonResponse, content)


def _repeated(texts: list[str], count: int) -> list[str]:
    return texts * count if len(texts) == 1 else texts


async def _scores(
    request: Request, name: str | None, pairs: list[tuple[str, str]]
) -> tuple[str, list[float], RerankUsage]:
    """Return the model, the score of each pair, and the number of tokens."""
    service: Service = request.app.state.service
    model = await service.open_model(request, name, RerankRequest.kind)
    rows = await run_in_thread(request, model.reranker.encode, pairs)
    count = sum(map(len, rows))
    request.scope["state"]["log"] |= {"model": model.name, "texts": len(rows), "prompt_tokens": count}
    logits = await service.embed(request, model, rows)
    scores: list[float] = probabilities(logits).tolist()
    return model.name, scores, {"prompt_tokens": count, "total_tokens": count}
