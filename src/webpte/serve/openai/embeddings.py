"""`/v1/embeddings`: texts to vectors, by an encoder."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..failures import Refusal
from ..incoming import read_json
from ..sending import Json, run_until_disconnect
from ..service import Service
from .fields import MISSING, Fields


async def embeddings(request: Request) -> Response:
    service: Service = request.app.state.service
    fields = Fields(await read_json(request, service.config))
    model = fields.text("model")
    texts = service.texts(model)
    given = _inputs(fields.raw("input", MISSING), service.config.max_inputs)
    form = fields.choice("encoding_format", ("float", "base64"), "float")
    served = service.model(model).dimensions
    wanted = fields.whole("dimensions", 1, 1 << 16, served)
    if wanted != served:
        raise Refusal(
            400,
            f"dimensions is {wanted}, and the vectors of {model} have {served}; it was made for no others",
            param="dimensions",
        )
    fields.ignore("user")
    fields.end()
    rows = await asyncio.to_thread(texts.encode, given, truncate=False)
    request.scope["state"]["log"] |= {"model": model, "texts": len(rows), "prompt_tokens": sum(map(len, rows))}
    vectors = await run_until_disconnect(request, service.backend.embed(model, rows))
    data = [_entry(number, vector, form) for number, vector in enumerate(vectors)]
    count = sum(map(len, rows))
    usage = {"prompt_tokens": count, "total_tokens": count}
    return Json({"object": "list", "model": model, "data": data, "usage": usage})


def _inputs(given: Any, most: int) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        told = "; tokens of another tokenizer would mean nothing here" if isinstance(given, list) and given else ""
        raise Refusal(400, f"input is a text or a list of texts, not empty{told}", param="input")
    if len(texts) > most:
        raise Refusal(400, f"input has {len(texts)} texts; {most} are the most (max_inputs)", param="input")
    return texts


def _entry(number: int, vector: Any, form: str) -> dict[str, Any]:
    """A vector, as numbers or as the bytes of little-endian f32."""
    told = vector.tolist() if form == "float" else base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {"object": "embedding", "index": number, "embedding": told}
