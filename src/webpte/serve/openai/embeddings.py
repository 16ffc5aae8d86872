"""`/v1/embeddings`: vectors of texts, by an encoder."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import ApiError
from ..http import JsonResponse, client_of, read_body, run_in_thread, run_until_disconnect
from ..service import Service
from .generation import at_most
from .requests import EmbeddingsRequest


async def embeddings(request: Request) -> Response:
    """Handle `POST /v1/embeddings`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, EmbeddingsRequest)
    encoder = service.encoder(body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    at_most("input", len(texts), service.config.max_inputs, "max_inputs")
    dimensions = service.model(body.model).dimensions
    if body.dimensions not in (None, dimensions):
        raise ApiError(
            400, f"dimensions: expected {dimensions}, those of {body.model}, got {body.dimensions}", param="dimensions"
        )
    rows = await run_in_thread(request, partial(encoder.encode, texts, truncate=False))
    count = sum(map(len, rows))
    request.scope["state"]["log"] |= {"model": body.model, "texts": len(rows), "prompt_tokens": count}
    computing = service.backend.embed(body.model, rows, client=client_of(request))
    vectors = await run_until_disconnect(request, computing)
    usage = {"prompt_tokens": count, "total_tokens": count}
    return await run_in_thread(request, _response, body.model, vectors, body.encoding_format, usage)


def _response(model: str, vectors: Any, encoding: str, usage: dict[str, int]) -> Response:
    data = [_entry(index, vector, encoding) for index, vector in enumerate(vectors)]
    return JsonResponse({"object": "list", "model": model, "data": data, "usage": usage})


def _entry(index: int, vector: Any, encoding: str) -> dict[str, Any]:
    """Return a vector as numbers, or as the base64 of little-endian f32."""
    embedding = vector.tolist() if encoding == "float" else base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": embedding}
