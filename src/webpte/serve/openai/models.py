"""`/v1/models`, `/tokenize` and `/detokenize`: what there is, and how it reads."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..failures import Refusal
from ..incoming import read_json
from ..messages import Served
from ..sending import Json
from ..service import Service
from .fields import Fields
from .messages import messages_from
from .tools import offer_from

MOST_TOKENS = 1 << 20


async def models(request: Request) -> Response:
    service: Service = request.app.state.service
    return Json({"object": "list", "data": [_entry(served) for served in service.backend.models.values()]})


async def model(request: Request) -> Response:
    service: Service = request.app.state.service
    return Json(_entry(service.model(request.path_params["name"])))


def _entry(served: Served) -> dict[str, Any]:
    """OpenAI's fields, and what a client may want to know besides."""
    more: dict[str, Any] = {"kind": served.kind, "context": served.context, "fingerprint": served.fingerprint}
    if served.kind == "encoder":
        more["dimensions"] = served.dimensions
    return {"id": served.name, "object": "model", "created": served.created, "owned_by": "webpte", **more}


async def tokenize(request: Request) -> Response:
    """Tokens of a `prompt`, as a completion would take it, or of `messages`, as a chat would."""
    service: Service = request.app.state.service
    fields = Fields(await read_json(request, service.config))
    words = service.words(fields.text("model"))
    text = fields.text("prompt", None)
    given = fields.raw("messages", None)
    if (text is None) == (given is None):
        raise Refusal(400, "one of prompt and messages is wanted", param="prompt")
    if text is not None:
        fields.end()
        tokens = await asyncio.to_thread(words.tokens_of_text, text)
    else:
        messages, offer = messages_from(fields), offer_from(fields, service.config)
        fields.end()
        tokens = await asyncio.to_thread(words.tokens_of_chat, messages, offer.for_template())
    return Json({"tokens": tokens, "count": len(tokens), "max_model_len": words.context})


async def detokenize(request: Request) -> Response:
    """The text of `tokens`, special ones written out."""
    service: Service = request.app.state.service
    fields = Fields(await read_json(request, service.config))
    words = service.words(fields.text("model"))
    given = fields.listed("tokens", MOST_TOKENS)
    fields.end()
    return Json({"prompt": await asyncio.to_thread(words.text_of, given)})
