"""`/v1/models`, `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import ApiError
from ..http import JsonResponse, read_body, run_in_thread
from ..messages import ModelInfo
from ..service import Service
from .chat import template_messages
from .requests import DetokenizeRequest, TokenizeRequest
from .tools import tool_config


async def models(request: Request) -> Response:
    """Handle `GET /v1/models`."""
    service: Service = request.app.state.service
    return JsonResponse({"object": "list", "data": [_entry(model) for model in service.backend.models.values()]})


async def model(request: Request) -> Response:
    """Handle `GET /v1/models/NAME`."""
    service: Service = request.app.state.service
    return JsonResponse(_entry(service.model(request.path_params["name"])))


def _entry(info: ModelInfo) -> dict[str, Any]:
    """Return OpenAI's fields, and `kind`, `context`, `fingerprint` and `dimensions` as extensions."""
    more: dict[str, Any] = {"kind": info.kind, "context": info.context, "fingerprint": info.fingerprint}
    if info.kind == "encoder":
        more["dimensions"] = info.dimensions
    return {"id": info.name, "object": "model", "created": info.created, "owned_by": "webpte", **more}


async def tokenize(request: Request) -> Response:
    """Return the tokens of a `prompt`, as a completion sees it, or of `messages`, as a chat does."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, TokenizeRequest)
    text = service.text_processor(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "expected either prompt or messages", param="prompt")
    if body.prompt is not None:
        tokens = await run_in_thread(request, text.tokenize_text, body.prompt, body.parse_special)
    else:
        tools = tool_config(body, service.config).for_template()
        tokens = await run_in_thread(request, text.tokenize_chat, template_messages(body.messages or ()), tools)
    content = {"tokens": tokens, "count": len(tokens), "max_model_len": text.context}
    return await run_in_thread(request, JsonResponse, content)


async def detokenize(request: Request) -> Response:
    """Return the text of `tokens`, including special ones."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, DetokenizeRequest)
    text = service.text_processor(body.model)
    return JsonResponse({"prompt": await run_in_thread(request, text.detokenize, body.tokens)})
