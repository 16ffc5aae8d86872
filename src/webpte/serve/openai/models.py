"""`/v1/models`, `/tokenize`, `/detokenize` and `/v1/embeddings`: the endpoints that generate no text."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ...embed.text_tokenizer import TextTokenizer
from ...llm.text_model import TextModel
from ...typing import Array
from ..backend import ModelStatus
from ..bodies import read_body
from ..clients import run_in_thread
from ..config import Config
from ..errors import ApiError
from ..responses import JsonResponse
from ..served_models import KINDS, ServedModel
from ..service import Service
from .chat import image_uploads, template_messages
from .generation import at_most
from .requests import DetokenizeRequest, EmbeddingsRequest, TokenizeRequest
from .response_types import (
    DetokenizeResponse,
    EmbeddingEntry,
    EmbeddingList,
    EmbeddingUsage,
    ModelEntry,
    ModelList,
    TokenizeResponse,
)
from .tools import tool_config


async def models(request: Request) -> Response:
    """Handle `GET /v1/models`."""
    service: Service = request.app.state.service
    entries = [_model_entry(service, model) for model in service.models.values()]
    content: ModelList = {"object": "list", "data": entries}
    return JsonResponse(content)


async def model(request: Request) -> Response:
    """Handle `GET /v1/models/NAME`."""
    service: Service = request.app.state.service
    return JsonResponse(_model_entry(service, service.find(request.path_params["name"])))


def _model_entry(service: Service, status: ModelStatus) -> ModelEntry:
    entry: ModelEntry = {
        "id": status.name,
        "object": "model",
        "created": created(status),
        "owned_by": "webpte",
        "kind": status.kind,
        "state": status.state,
    }
    if status.reason:
        entry["reason"] = status.reason
    info, served = status.info, service.served(status)
    if info is None:
        return entry
    entry["context"] = info.context
    entry["fingerprint"] = info.fingerprint
    if "embedding" in KINDS[info.kind].capabilities:
        entry["dimensions"] = info.dimensions
    if status.adapter is not None:
        entry["parent"] = status.file.name
    if info.text is not None and served is not None:
        entry["sampling"] = info.text.sampling
        entry["images"] = served.text.images is not None
        entry["tools"] = served.text.tool_format is not None
        entry["thinking"] = served.text.thought_tags is not None
    return entry


def created(status: ModelStatus) -> int:
    """Return the time of the file of a model, in seconds since 1970."""
    if status.info is not None:
        return status.info.created
    path = Path(status.file.path)
    return int(path.stat().st_mtime) if path.exists() else 0


async def tokenize(request: Request) -> Response:
    """Return the tokens of a `prompt`, as a completion sees it, or of `messages`, as a chat does."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, TokenizeRequest)
    model = await service.open_model(request, body.model, body.kind)
    text = model.text
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "expected either prompt or messages", param="prompt")
    tokens = await run_in_thread(request, _tokens, body, text, service.config)
    content: TokenizeResponse = {"tokens": tokens, "count": len(tokens), "max_model_len": text.context_limit.tokens}
    return await run_in_thread(request, JsonResponse, content)


def _tokens(body: TokenizeRequest, text: TextModel, config: Config) -> list[int]:
    if body.prompt is not None:
        return text.tokenize_text(body.prompt, parse_special=body.parse_special)
    messages = body.messages or []
    for image in image_uploads(messages):
        raise ApiError(400, f"{image.param}: an image has no tokens. Send text.", param=image.param)
    return text.tokenize_chat(template_messages(messages, ()), tool_config(body, config).for_template())


async def detokenize(request: Request) -> Response:
    """Return the text of `tokens`, including special ones."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, DetokenizeRequest)
    model = await service.open_model(request, body.model, body.kind)
    content: DetokenizeResponse = {"prompt": await run_in_thread(request, model.text.detokenize, body.tokens)}
    return JsonResponse(content)


async def embeddings(request: Request) -> Response:
    """Handle `POST /v1/embeddings`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, EmbeddingsRequest)
    texts = [body.input] if isinstance(body.input, str) else body.input
    model = await service.open_model(request, body.model, body.kind)
    if body.dimensions not in (None, model.info.dimensions):
        expected = f"{model.info.dimensions}, those of {model.name}"
        raise ApiError(400, f"dimensions: expected {expected}, got {body.dimensions}", param="dimensions")
    vectors, count = await embed_texts(request, model, texts, truncate=False)
    usage: EmbeddingUsage = {"prompt_tokens": count, "total_tokens": count}
    return await run_in_thread(request, _embeddings_response, model.name, vectors, body.encoding_format, usage)


async def embed_texts(request: Request, model: ServedModel, texts: list[str], *, truncate: bool) -> tuple[Array, int]:
    """Return the vectors (N, D) of texts, and the number of their tokens. Without texts, only the model is checked.

    With `truncate`, a text that exceeds the encoder's context is cut; otherwise it is an error.
    """
    service: Service = request.app.state.service
    at_most("input", len(texts), service.config.max_inputs, "max_inputs")
    if not texts:
        return np.zeros((0, model.info.dimensions), np.float32), 0
    rows = await run_in_thread(request, _token_rows, model.encoder, texts, truncate)
    count = sum(map(len, rows))
    request.scope["state"]["log"] |= {"model": model.name, "texts": len(rows), "prompt_tokens": count}
    return await service.embed(request, model, rows), count


def _token_rows(encoder: TextTokenizer, texts: list[str], truncate: bool) -> list[list[int]]:
    if not truncate:
        return encoder.encode(texts, truncate=False)
    prefix = encoder.prefix(None, None)
    return [encoder.encode_text(text, prefix)[0] for text in texts]  # `encode` warns, and clients asked for it


def _embeddings_response(model: str, vectors: Array, encoding: str, usage: EmbeddingUsage) -> Response:
    data = [_vector_entry(index, vector, encoding) for index, vector in enumerate(vectors)]
    content: EmbeddingList = {"object": "list", "model": model, "data": data, "usage": usage}
    return JsonResponse(content)


def _vector_entry(index: int, vector: Array, encoding: str) -> EmbeddingEntry:
    """Return a vector as numbers, or as the base64 of little-endian f32."""
    embedding = vector.tolist() if encoding == "float" else base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": embedding}
