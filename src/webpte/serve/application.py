"""The server as an ASGI application. Its state is in its backend, so it may be replicated."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import cache, partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import Error
from ..version import __version__
from .anthropic.messages import count_tokens, messages
from .anthropic.requests import CountTokensRequest, MessagesRequest
from .anthropic.response_types import AnthropicEvent, AnthropicMessage, AnthropicTokenCount
from .backend import Backend
from .config import Config
from .errors import ApiError, api_error
from .middleware import RequestMiddleware
from .ollama import endpoints as ollama
from .ollama.pull import pull
from .ollama.requests import (
    OllamaChatRequest,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaPullRequest,
    OllamaShowRequest,
)
from .ollama.response_types import (
    OllamaEmbeddingsResponse,
    OllamaEmbedResponse,
    OllamaLine,
    OllamaModelList,
    OllamaPullProgress,
    OllamaPullStatus,
    OllamaResponse,
    OllamaRunningList,
    OllamaShowResponse,
    OllamaVersion,
    OllamaWhole,
)
from .openai.audio import transcriptions, translations
from .openai.chat import chat
from .openai.completions import completions
from .openai.models import detokenize, embeddings, model, models, tokenize
from .openai.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingsRequest,
    ResponsesRequest,
    TokenizeRequest,
    TranscriptionRequest,
)
from .openai.response_types import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatUsageChunk,
    Completion,
    CompletionChunk,
    DetokenizeResponse,
    EmbeddingList,
    ModelEntry,
    ModelList,
    ResponseEvent,
    ResponseObject,
    TokenizeResponse,
    TranscriptDelta,
    TranscriptDone,
    Transcription,
    VerboseTranscription,
)
from .openai.responses import responses
from .openapi import Endpoint, openapi, openapi_document
from .page import PAGE_PATHS, page, wants_page
from .reference import REFERENCE_PATH, reference
from .rerank import RerankRequest, RerankResponse, ScoreRequest, ScoreResponse, rerank, score
from .responses import JsonResponse, error_response
from .served_models import KINDS
from .service import Service

ROUTES = (
    Endpoint("/v1/chat/completions", chat, "POST", ChatCompletion, ChatRequest, ChatCompletionChunk | ChatUsageChunk),
    Endpoint("/v1/completions", completions, "POST", Completion, CompletionRequest, CompletionChunk | Completion),
    Endpoint("/v1/responses", responses, "POST", ResponseObject, ResponsesRequest, ResponseEvent),
    Endpoint("/v1/messages", messages, "POST", AnthropicMessage, MessagesRequest, AnthropicEvent),
    Endpoint("/v1/messages/count_tokens", count_tokens, "POST", AnthropicTokenCount, CountTokensRequest),
    Endpoint("/v1/embeddings", embeddings, "POST", EmbeddingList, EmbeddingsRequest),
    Endpoint(
        "/v1/audio/transcriptions",
        transcriptions,
        "POST",
        Transcription | VerboseTranscription,
        TranscriptionRequest,
        TranscriptDelta | TranscriptDone,
    ),
    Endpoint(
        "/v1/audio/translations",
        translations,
        "POST",
        Transcription | VerboseTranscription,
        TranscriptionRequest,
        TranscriptDelta | TranscriptDone,
    ),
    Endpoint("/v1/rerank", rerank, "POST", RerankResponse, RerankRequest),
    Endpoint("/v2/rerank", rerank, "POST", RerankResponse, RerankRequest),
    Endpoint("/v1/score", score, "POST", ScoreResponse, ScoreRequest),
    Endpoint("/v1/models", models, "GET", ModelList),
    Endpoint("/v1/models/{name:path}", model, "GET", ModelEntry),
    Endpoint("/api/chat", ollama.chat, "POST", OllamaWhole, OllamaChatRequest, OllamaLine | OllamaResponse),
    Endpoint("/api/generate", ollama.generate, "POST", OllamaWhole, OllamaGenerateRequest, OllamaLine | OllamaResponse),
    Endpoint("/api/embed", ollama.embed, "POST", OllamaEmbedResponse, OllamaEmbedRequest),
    Endpoint("/api/embeddings", ollama.embeddings, "POST", OllamaEmbeddingsResponse, OllamaEmbeddingsRequest),
    Endpoint("/api/show", ollama.show, "POST", OllamaShowResponse, OllamaShowRequest),
    Endpoint("/api/pull", pull, "POST", OllamaPullStatus, OllamaPullRequest, OllamaPullStatus | OllamaPullProgress),
    Endpoint("/api/tags", ollama.tags, "GET", OllamaModelList),
    Endpoint("/api/ps", ollama.running, "GET", OllamaRunningList),
    Endpoint("/api/version", ollama.version, "GET", OllamaVersion),
    Endpoint("/tokenize", tokenize, "POST", TokenizeResponse, TokenizeRequest),
    Endpoint("/detokenize", detokenize, "POST", DetokenizeResponse, DetokenizeRequest),
)


def app(backend: Backend, config: Config | None = None) -> Starlette:
    """Return an application that starts its backend, answers requests, and stops the backend."""
    config = (config or Config()).with_key_file()
    service = Service(backend, config)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    application = Starlette(
        routes=[
            *(Route(endpoint.path, endpoint.handler, methods=[endpoint.method]) for endpoint in ROUTES),
            *(Route(f"/api/{name}", ollama.change_models, methods=[method]) for name, method in ollama.CHANGES),
            Route("/", _index),
            *(Route(path, page) for path in PAGE_PATHS),
            Route("/health", _health),
            Route("/metrics", _metrics),
            Route("/openapi.json", openapi),
            Route(REFERENCE_PATH, reference),
        ],
        middleware=[Middleware(RequestMiddleware, service=service), *_cors(config)],
        exception_handlers={HTTPException: _no_route, Error: _failed, ApiError: _failed, RecursionError: _too_deep},
        lifespan=lifespan,
    )
    application.state.service = service
    application.state.openapi = cache(partial(openapi_document, ROUTES, bool(config.api_keys)))
    return application


def _cors(config: Config) -> list[Middleware]:
    if not config.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id", "X-Api-Key", "Anthropic-Version"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    ]


async def _index(request: Request) -> Response:
    """Return the chat page to browsers. Others get the models, the endpoints, and a command for a first request."""
    service: Service = request.app.state.service
    if wants_page(request.scope):
        return await page(request)
    endpoints = [f"{endpoint.method} {endpoint.path}" for endpoint in ROUTES]
    body = {
        "server": f"webpte {__version__}",
        "documentation": "https://github.com/webpte/webpte/blob/main/docs/serving.md",
        "models": {name: model.kind for name, model in service.models.items()},
        "endpoints": [*endpoints, "GET /health", "GET /metrics", "GET /openapi.json", "GET /docs"],
        "example": _example(service, str(request.base_url)),
    }
    return Response(json.dumps(body, indent=2, ensure_ascii=False) + "\n", media_type="application/json")


def _example(service: Service, url: str) -> str:
    """Return a curl command for the first model."""
    model = next(iter(service.backend.statuses.values()))
    kind = KINDS[model.kind]
    body = ["-F", "file=@speech.wav"]
    if kind.example is not None:
        body = ["-d", json.dumps({"model": model.file.name, **kind.example}, ensure_ascii=False)]
    key = ' -H "Authorization: Bearer $API_KEY"' if service.config.api_keys else ""
    return shlex.join(["curl", url + kind.endpoint, *body]) + key


async def _health(request: Request) -> Response:
    """Return 200 if requests are answered, else 503."""
    service: Service = request.app.state.service
    stats = service.backend.stats()
    state = "loading" if service.loading and stats.state in ("starting", "ready") else stats.state
    body: dict[str, Any] = {"status": state, "queued": stats.queued, "busy": stats.busy, "slots": stats.slots}
    if stats.restart is not None:
        body["restart"] = asdict(stats.restart)
    return JsonResponse(body, 200 if state == "ready" else 503)


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reasons = {404: "unknown path", 405: "this path does not support the method"}
    status = error.status_code if error.status_code in reasons else 400
    reason = reasons.get(error.status_code, error.detail)
    response = ApiError(status, f"{reason}: {request.method} {request.url.path}. GET / lists the endpoints.")
    response.headers |= dict(error.headers or {})
    return error_response(response, request.url.path)


async def _too_deep(request: Request, error: Exception) -> Response:
    """Handle a body that is nested too deeply: nothing of ours recurses so far."""
    return await _failed(request, ApiError(400, "the body, or a schema in it, is nested too deeply"))


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, Error | ApiError)
    response = api_error(error)
    request.scope["state"]["log"]["error"] = response.code
    return error_response(response, request.url.path)
