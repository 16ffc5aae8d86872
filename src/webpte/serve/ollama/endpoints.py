"""Ollama's API: answers, embeddings and descriptions of models. The server's models cannot be changed through it."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ...llm.engine.embeddings import Segment
from ...llm.image_prompts import PreparedImage
from ...llm.prompts import TemplateCall, TemplateMessage
from ...llm.settings import GenerateSettings
from ...typing import Array, JsonObject
from ...version import __version__
from ..backend import ModelStatus, RequestUsage
from ..bodies import read_body
from ..clients import client_of, run_in_thread
from ..config import Config
from ..errors import ApiError
from ..images import ImageUpload, read_images, template_content
from ..openai.generation import (
    ANY_OBJECT,
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    ReasoningDelta,
    checked_params,
    constrain_response,
    output_tokens,
    respond,
    sampling_settings,
)
from ..openai.models import created, embed_texts
from ..openai.response_types import CompletionUsage
from ..openai.tools import ToolCallDelta, ToolConfig, tool_config
from ..responses import JsonResponse, LineStream
from ..served_models import KINDS, ServedModel
from ..service import Service
from .requests import (
    OllamaChatRequest,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaMessage,
    OllamaOptions,
    OllamaRequest,
    OllamaShowRequest,
    OllamaToolCall,
)
from .response_types import (
    OllamaAnswer,
    OllamaCall,
    OllamaContent,
    OllamaDoneReason,
    OllamaEmbeddingsResponse,
    OllamaEmbedResponse,
    OllamaHeader,
    OllamaLine,
    OllamaListedModel,
    OllamaLoaded,
    OllamaModel,
    OllamaModelList,
    OllamaResponse,
    OllamaRunningList,
    OllamaRunningModel,
    OllamaShowResponse,
    OllamaVersion,
)

ARCHITECTURE = "webpte"  # the prefix of keys in `model_info`: a program does not name its architecture
NEVER = "9999-12-31T23:59:59Z"  # when a model is unloaded
# Paths of Ollama's API that change the models of a server.
CHANGES = (("push", "POST"), ("create", "POST"), ("copy", "POST"), ("delete", "DELETE"))


async def chat(request: Request) -> Response:
    """Handle `POST /api/chat`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaChatRequest)
    if not body.messages:  # clients load a model in this way
        return await _load(request, body, "message")
    sources = [
        ImageUpload(f"messages[{at}].images[{number}]", data)
        for at, message in enumerate(body.messages)
        for number, data in enumerate(message.images)
    ]
    model = await service.open_model(request, body.model or None, body.kind, body.keep_alive)
    images = await read_images(request, model, sources)
    parsed = await run_in_thread(request, _parse_chat, body, service.config, model, images)
    return await respond(request, service, parsed, OllamaFormatter(body.model or model.name, "message"), LineStream)


async def generate(request: Request) -> Response:
    """Handle `POST /api/generate`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaGenerateRequest)
    if not body.prompt and not body.images:
        return await _load(request, body, "response")
    sources = [ImageUpload(f"images[{number}]", data) for number, data in enumerate(body.images)]
    model = await service.open_model(request, body.model or None, body.kind, body.keep_alive)
    images = await read_images(request, model, sources)
    parsed = await run_in_thread(request, _parse_generate, body, service.config, model, images)
    return await respond(request, service, parsed, OllamaFormatter(body.model or model.name, "response"), LineStream)


async def embed(request: Request) -> Response:
    """Handle `POST /api/embed`: vectors of length 1, cut to `dimensions`."""
    service: Service = request.app.state.service
    started = time.perf_counter_ns()
    body = await read_body(request, service.config, OllamaEmbedRequest)
    model = await service.open_model(request, body.model or None, body.kind, body.keep_alive)
    texts = ([body.input] if body.input else []) if isinstance(body.input, str) else body.input
    vectors, count = await embed_texts(request, model, texts, truncate=body.truncate)
    vectors = _unit_vectors(vectors[:, : body.dimensions])
    return await run_in_thread(request, _embeddings, body.model or model.name, vectors, started, count)


async def embeddings(request: Request) -> Response:
    """Handle `POST /api/embeddings`: the vector of one text."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaEmbeddingsRequest)
    model = await service.open_model(request, body.model or None, body.kind, body.keep_alive)
    vectors, _ = await embed_texts(request, model, [body.prompt] if body.prompt else [], truncate=True)
    content: OllamaEmbeddingsResponse = {"embedding": vectors[0].tolist() if len(vectors) else []}
    return JsonResponse(content)


async def tags(request: Request) -> Response:
    """Handle `GET /api/tags`: list the models."""
    service: Service = request.app.state.service
    entries: list[OllamaListedModel] = [
        {**_entry(model), "modified_at": _timestamp(created(model))} for model in service.models.values()
    ]
    content: OllamaModelList = {"models": entries}
    return JsonResponse(content)


async def running(request: Request) -> Response:
    """Handle `GET /api/ps`: list the models in memory, and those on the way to it."""
    service: Service = request.app.state.service
    entries: list[OllamaRunningModel] = [
        {
            **_entry(model),
            "size_vram": model.memory,
            "expires_at": NEVER if model.expires is None else _timestamp(time.time() + model.expires),
            "context_length": model.info.context if model.info is not None else 0,
            "state": model.state,
        }
        for model in service.backend.statuses.values()
        if model.state in ("loaded", "loading")
    ]
    content: OllamaRunningList = {"models": entries}
    return JsonResponse(content)


async def show(request: Request) -> Response:
    """Handle `POST /api/show`: describe a model, as far as it is known if it was never loaded."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaShowRequest)
    model = service.find(body.required_name())
    info, served = model.info, service.served(model)
    content: OllamaShowResponse = {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _entry(model)["details"],
        "model_info": {"general.architecture": ARCHITECTURE},
        "capabilities": [*KINDS[model.kind].capabilities],
        "modified_at": _timestamp(created(model)),
    }
    if info is not None:
        content["model_info"][f"{ARCHITECTURE}.context_length"] = info.context
    if info is not None and "embedding" in content["capabilities"]:
        content["model_info"][f"{ARCHITECTURE}.embedding_length"] = info.dimensions
    if info is not None and info.text is not None and served is not None:
        text = served.text
        more = {"tools": text.tool_format, "thinking": text.thought_tags, "vision": text.images}
        parameters = (f"{_option(name)} {value}" for name, value in info.text.sampling.items())
        content["parameters"] = "\n".join(parameters)
        content["template"] = info.text.template or ""
        content["capabilities"] += (name for name, format in more.items() if format is not None)
    return JsonResponse(content)


async def version(request: Request) -> Response:
    """Handle `GET /api/version`."""
    content: OllamaVersion = {"version": __version__}
    return JsonResponse(content)


async def change_models(request: Request) -> Response:
    """Refuse to upload, copy or remove a model: clients cannot choose what a server runs."""
    raise ApiError(
        403,
        f"{request.url.path}: this server does not change models. Name them when you start it: webpte serve MODEL",
        code="models_are_fixed",
    )


def _option(name: str) -> str:
    """Return Ollama's name of a sampling parameter."""
    field = OllamaOptions.model_fields.get(name)
    return field.alias or name if field is not None else name


def _entry(model: ModelStatus) -> OllamaModel:
    """Return the fields of a model that all lists have."""
    return {
        "name": model.name,
        "model": model.name,
        "size": os.path.getsize(model.file.path) if os.path.isfile(model.file.path) else 0,
        "digest": model.info.fingerprint if model.info is not None else "",
        "details": {
            "parent_model": model.file.name if model.adapter is not None else "",
            "format": "pte",
            "family": "",
            "families": [],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


def _unit_vectors(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def _embeddings(model: str, vectors: Array, started: int, count: int) -> Response:
    duration = time.perf_counter_ns() - started
    content: OllamaEmbedResponse = {
        "model": model,
        "embeddings": vectors.tolist(),
        "total_duration": duration,
        "load_duration": 0,
        "prompt_eval_count": count,
    }
    return JsonResponse(content)


async def _load(request: Request, body: OllamaRequest, field: Literal["message", "response"]) -> Response:
    """Load a model, or unload it if it is to be kept for 0 seconds."""
    service: Service = request.app.state.service
    model = service.find(body.model or None, body.kind)
    unloaded = body.keep_alive == 0 and service.backend.unload(model.file.name, client_of(request))
    if not unloaded:
        await service.open_model(request, model.name, body.kind, body.keep_alive)
    return JsonResponse(OllamaFormatter(body.model or model.name, field).without_text(unloaded))


def _parse_chat(
    body: OllamaChatRequest, config: Config, model: ServedModel, images: Sequence[PreparedImage]
) -> ParsedRequest:
    text = model.text
    settings = _settings(body, config)
    tools = tool_config(cast(Any, body), config) if body.tools else ToolConfig()
    calls = constrain_response(settings, tools, _schema(body), text)
    following = iter(images)
    messages = [_template_message(message, following) for message in body.messages]
    params = checked_params(config, text, settings)
    tokens, params = text.chat_prompt(messages, tools.for_template(), params)
    return ParsedRequest(model, [tokens], params, body.stream, include_usage=False, calls=calls)


def _template_message(message: OllamaMessage, images: Iterator[PreparedImage]) -> TemplateMessage:
    content = template_content([*(next(images) for _ in message.images), message.content])
    fields: TemplateMessage = {"role": message.role, "content": content}
    if message.thinking:
        fields["reasoning_content"] = message.thinking
    if message.tool_calls:
        fields["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    if message.tool_name is not None:
        fields["name"] = message.tool_name
    return fields


def _template_call(call: OllamaToolCall) -> TemplateCall:
    return {"type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}


def _parse_generate(
    body: OllamaGenerateRequest, config: Config, model: ServedModel, images: Sequence[PreparedImage]
) -> ParsedRequest:
    text = model.text
    settings = _settings(body, config)
    if (schema := _schema(body)) is not None:
        settings["json_schema"] = schema
    params = checked_params(config, text, settings)
    tokens: tuple[Segment, ...]
    if body.raw or text.template is None:
        if images:
            raise ApiError(400, "images: not allowed with raw, or without a chat template", param="images")
        tokens = text.prompt(text.tokenize_text(body.prompt, parse_special=body.raw))
    else:
        system = [{"role": "system", "content": body.system}] if body.system else []
        message = {"role": "user", "content": template_content([*images, body.prompt])}
        tokens, params = text.chat_prompt([*system, message], None, params)
    return ParsedRequest(model, [tokens], params, body.stream, include_usage=False)


def _settings(body: OllamaRequest, config: Config) -> GenerateSettings:
    options = body.options
    limit = options.num_predict if options.num_predict is not None and options.num_predict > 0 else None
    return {
        **sampling_settings(options, options.seed),
        "max_new_tokens": output_tokens(config, num_predict=limit),
        "stop": options.stop,
        "think": body.think is not False if body.think is not None else None,
        "reasoning_effort": body.think if isinstance(body.think, str) else None,
    }


def _schema(body: OllamaRequest) -> JsonObject | None:
    return dict(ANY_OBJECT) if body.format == "json" else body.format or None


class OllamaFormatter:
    """Writes lines and whole responses: the text is in `message` of a chat, else in `response`."""

    named_events = True

    def __init__(self, model: str, field: Literal["message", "response"]) -> None:
        self._model = model
        self._field = field
        self._started = time.perf_counter_ns()
        self._first: int | None = None  # when the first delta arrived

    def whole(self, choices: Sequence[Choice], usage: CompletionUsage) -> OllamaResponse:
        (choice,) = choices
        assert choice.finish is not None
        return self._end(choice.finish, choice.text, choice.tool_calls, choice.reasoning)

    def opening(self, usages: Sequence[RequestUsage]) -> Iterator[OllamaLine]:
        return iter(())

    def events(self, index: int, delta: Delta) -> Iterator[OllamaLine | OllamaResponse]:
        self._first = self._first or time.perf_counter_ns()
        if isinstance(delta, FinishEvent):
            yield self._end(delta)
        elif isinstance(delta, ToolCallDelta):
            yield self._line("", [delta])
        elif isinstance(delta, ReasoningDelta):
            yield self._line("", thinking=delta.text)
        elif delta.text:
            yield self._line(delta.text)

    def closing(self, usage: CompletionUsage) -> Iterator[OllamaLine]:
        return iter(())

    def without_text(self, unloaded: bool) -> OllamaLoaded:
        """Return the response to a request without a prompt, which loads or unloads a model."""
        return self._done("unload" if unloaded else "load", "", (), "")

    def _line(self, text: str, tool_calls: Sequence[ToolCallDelta] = (), thinking: str = "") -> OllamaLine:
        return {**self._header(), **self._content(text, tool_calls, thinking), "done": False}

    def _end(
        self, finish: FinishEvent, text: str = "", tool_calls: Sequence[ToolCallDelta] = (), thinking: str = ""
    ) -> OllamaResponse:
        now = time.perf_counter_ns()
        first = self._first or now
        return {
            **self._done("length" if finish.finish == "length" else "stop", text, tool_calls, thinking),
            "load_duration": 0,
            "prompt_eval_count": finish.usage.prompt_tokens,
            "prompt_eval_duration": first - self._started,
            "eval_count": finish.usage.completion_tokens,
            "eval_duration": now - first,
        }

    def _done(
        self, reason: OllamaDoneReason, text: str, tool_calls: Sequence[ToolCallDelta], thinking: str
    ) -> OllamaLoaded:
        return {
            **self._header(),
            **self._content(text, tool_calls, thinking),
            "done": True,
            "done_reason": reason,
            "total_duration": time.perf_counter_ns() - self._started,
        }

    def _header(self) -> OllamaHeader:
        return {"model": self._model, "created_at": _timestamp(time.time())}

    def _content(self, text: str, tool_calls: Sequence[ToolCallDelta], thinking: str) -> OllamaContent:
        if self._field == "response":
            return {"response": text, "thinking": thinking} if thinking else {"response": text}
        message: OllamaAnswer = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if tool_calls:
            message["tool_calls"] = [_tool_call(call) for call in tool_calls]
        return {"message": message}


def _tool_call(call: ToolCallDelta) -> OllamaCall:
    return {"function": {"name": call.name, "arguments": json.loads(call.arguments)}}


def _timestamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
