"""The server as an ASGI application: `app(backend, config)`. Its state is in its backend, so it may be replicated."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import Error
from .backend import Backend
from .config import Config
from .failures import Refusal, refusal_of
from .guard import Guard
from .openai.chat import chat
from .openai.completions import completions
from .openai.embeddings import embeddings
from .openai.models import detokenize, model, models, tokenize
from .openai.responses import responses
from .sending import Json, refused
from .service import Service

ROUTES = (
    ("/v1/chat/completions", chat, "POST"),
    ("/v1/completions", completions, "POST"),
    ("/v1/responses", responses, "POST"),
    ("/v1/embeddings", embeddings, "POST"),
    ("/v1/models", models, "GET"),
    ("/v1/models/{name:path}", model, "GET"),
    ("/tokenize", tokenize, "POST"),
    ("/detokenize", detokenize, "POST"),
)


def app(backend: Backend, config: Config | None = None) -> Starlette:
    """An application that starts its backend and stops it, over which requests are answered."""
    config = (config or Config()).with_keys()
    service = Service(backend, config)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    made = Starlette(
        routes=[
            *(Route(path, endpoint, methods=[method]) for path, endpoint, method in ROUTES),
            Route("/health", _health),
            Route("/metrics", _metrics),
        ],
        middleware=[Middleware(Guard, service=service), *_cors(config)],
        exception_handlers={HTTPException: _not_there, Error: _failed, Refusal: _failed, RecursionError: _too_deep},
        lifespan=lifespan,
    )
    made.state.service = service
    return made


def _cors(config: Config) -> list[Middleware]:
    if not config.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    ]


async def _health(request: Request) -> Response:
    """200 where requests are answered, 503 where they are not, or not yet again."""
    service: Service = request.app.state.service
    stats = service.backend.stats()
    told = {"status": stats.state, "queued": stats.queued, "busy": stats.busy, "slots": stats.slots}
    return Json(told, 200 if stats.state == "ready" else 503)


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: "there is no such path", 405: "the path takes another method"}.get(error.status_code, error.detail)
    found = Refusal(error.status_code if error.status_code in (404, 405) else 400, f"{what}: {request.method} here")
    found.headers |= dict(error.headers or {})
    return refused(found)


async def _too_deep(request: Request, error: Exception) -> Response:
    """Of what was sent: nothing of ours goes so deep."""
    return await _failed(request, Refusal(400, "the body, or a schema in it, is nested too deeply"))


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, Error | Refusal)
    found = refusal_of(error)
    request.scope["state"]["log"]["error"] = found.code
    return refused(found)
