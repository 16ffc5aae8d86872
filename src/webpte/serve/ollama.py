"""Ollama's API, for clients that speak it: `/api/chat`, `/api/generate`, `/api/tags` and `/api/version`."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..llm.settings import LARGEST, MAX_STOP_STRINGS, stop_strings
from ..version import __version__
from .errors import ApiError
from .http import JsonResponse, LineStream, RequestBody, read_body, run_in_thread
from .openai.generation import (
    ANY_OBJECT,
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    constrain_response,
    output_tokens,
    respond,
    sampling_settings,
)
from .openai.requests import MAX_MESSAGES, ChatTool, NonEmpty
from .openai.tools import ToolCallDelta, ToolConfig, tool_config
from .service import Service

LATEST = ":latest"  # that clients append to a name


class OllamaOptions(RequestBody):
    """`options` of a request. What concerns the loading of a model is ignored: it is loaded already."""

    ignored = (
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "num_keep",
        "use_mmap",
        "numa",
        "repeat_last_n",
    )
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST)
    top_p: float | None = Field(default=None, ge=0, le=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100, alias="repeat_penalty")
    presence_penalty: float | None = Field(default=None, ge=-100, le=100)
    frequency_penalty: float | None = Field(default=None, ge=-100, le=100)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**64 - 1)
    num_predict: int | None = Field(default=None, ge=-2, le=LARGEST)  # below 0: no limit
    stop: NonEmpty | Annotated[list[NonEmpty], Field(max_length=MAX_STOP_STRINGS)] = Field(default_factory=list)


class OllamaRequest(RequestBody):
    """What chats and completions share."""

    ignored: ClassVar[tuple[str, ...]] = ("keep_alive", "think", "logprobs", "top_logprobs")
    model: str
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] = ""
    options: OllamaOptions = Field(default_factory=OllamaOptions)


class OllamaFunctionCall(RequestBody):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class OllamaToolCall(RequestBody):
    function: OllamaFunctionCall


class OllamaMessage(RequestBody):
    ignored = ("thinking",)
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    images: list[str] = Field(default_factory=list, max_length=0)
    tool_calls: list[OllamaToolCall] = Field(default_factory=list)
    tool_name: str | None = None


class OllamaChatRequest(OllamaRequest):
    """`POST /api/chat`."""

    messages: list[OllamaMessage] = Field(default_factory=list, max_length=MAX_MESSAGES)
    tools: list[ChatTool] = Field(default_factory=list)
    tool_choice: None = None
    parallel_tool_calls: bool = True


class OllamaGenerateRequest(OllamaRequest):
    """`POST /api/generate`."""

    ignored = (*OllamaRequest.ignored, "context", "template")
    unsupported: ClassVar[dict[str, str]] = {"suffix": "the model continues texts and does not fill gaps"}
    prompt: str = ""
    system: str = ""
    raw: bool = False
    images: list[str] = Field(default_factory=list, max_length=0)


async def chat(request: Request) -> Response:
    """Handle `POST /api/chat`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaChatRequest)
    if not body.messages:  # clients load a model in this way
        return _loaded(service, body.model, "message")
    parsed = await run_in_thread(request, _parse_chat, body, service)
    return await respond(request, service, parsed, OllamaFormatter(body.model, "message"), LineStream)


async def generate(request: Request) -> Response:
    """Handle `POST /api/generate`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaGenerateRequest)
    if not body.prompt:
        return _loaded(service, body.model, "response")
    parsed = await run_in_thread(request, _parse_generate, body, service)
    return await respond(request, service, parsed, OllamaFormatter(body.model, "response"), LineStream)


async def tags(request: Request) -> Response:
    """Handle `GET /api/tags`: list the language models."""
    service: Service = request.app.state.service
    models = [model for model in service.backend.models.values() if model.kind == "language"]
    entries = [
        {
            "name": model.name,
            "model": model.name,
            "modified_at": _timestamp(model.created),
            "size": os.path.getsize(model.path) if os.path.isfile(model.path) else 0,
            "digest": model.fingerprint,
            "details": {"format": "pte", "family": "", "families": [], "parameter_size": "", "quantization_level": ""},
        }
        for model in models
    ]
    return JsonResponse({"models": entries})


async def version(request: Request) -> Response:
    """Handle `GET /api/version`."""
    return JsonResponse({"version": __version__})


def error_response(error: ApiError) -> Response:
    """Return an error in Ollama's form."""
    return JsonResponse({"error": str(error)}, error.status, error.headers)


def _model_name(service: Service, name: str) -> str:
    """Return the name of a model; clients may append a tag."""
    return name.removesuffix(LATEST) if name not in service.backend.models else name


def _loaded(service: Service, model: str, field: str) -> Response:
    service.model(_model_name(service, model), "language")
    return JsonResponse(OllamaFormatter(model, field).end("load"))


def _parse_chat(body: OllamaChatRequest, service: Service) -> ParsedRequest:
    name = _model_name(service, body.model)
    text = service.text_processor(name)
    settings = _settings(body, service)
    tools = tool_config(cast(Any, body), service.config) if body.tools else ToolConfig()
    calls = constrain_response(settings, tools, _schema(body), text)
    messages = [_template_message(message) for message in body.messages]
    tokens = text.encode_chat(messages, tools.for_template() if tools.tools else None)
    return ParsedRequest(name, [tokens], settings, body.stream, False, calls)


def _template_message(message: OllamaMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [{"type": "function", **call.model_dump()} for call in message.tool_calls]
    if message.tool_name is not None:
        fields["name"] = message.tool_name
    return fields


def _parse_generate(body: OllamaGenerateRequest, service: Service) -> ParsedRequest:
    name = _model_name(service, body.model)
    text = service.text_processor(name)
    settings = _settings(body, service)
    if (schema := _schema(body)) is not None:
        settings["json_schema"] = schema
    if body.raw or not text.has_template:
        tokens = text.encode_text(body.prompt, body.raw)
    else:
        system = [{"role": "system", "content": body.system}] if body.system else []
        tokens = text.encode_chat([*system, {"role": "user", "content": body.prompt}], None)
    return ParsedRequest(name, [tokens], settings, body.stream, False)


def _settings(body: OllamaRequest, service: Service) -> dict[str, Any]:
    options = body.options
    limit = options.num_predict if options.num_predict is not None and options.num_predict > 0 else None
    return sampling_settings(options, options.seed) | {
        "max_new_tokens": output_tokens(service.config, num_predict=limit),
        "stop": list(stop_strings(options.stop)),
    }


def _schema(body: OllamaRequest) -> dict[str, Any] | None:
    return dict(ANY_OBJECT) if body.format == "json" else body.format or None


class OllamaFormatter:
    """Writes lines and whole responses: the text is in `message` of a chat, else in `response`."""

    named_events = True

    def __init__(self, model: str, field: str) -> None:
        self._model = model
        self._field = field
        self._started = time.perf_counter_ns()
        self._first: int | None = None  # when the first delta arrived

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        (choice,) = choices
        assert choice.finish is not None
        return self.end(choice.finish.finish, choice.text, choice.tool_calls, choice.finish)

    def opening(self, count: int) -> Iterator[dict[str, Any]]:
        return iter(())

    def events(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        self._first = self._first or time.perf_counter_ns()
        if isinstance(delta, FinishEvent):
            yield self.end(delta.finish, finish=delta)
        elif isinstance(delta, ToolCallDelta):
            yield {**self._head(), **self._content("", [delta]), "done": False}
        elif delta.text:
            yield {**self._head(), **self._content(delta.text), "done": False}

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        return iter(())

    def end(
        self,
        reason: str,
        text: str = "",
        tool_calls: Sequence[ToolCallDelta] = (),
        finish: FinishEvent | None = None,
    ) -> dict[str, Any]:
        """Return the last object of a response. Durations are in nanoseconds."""
        now = time.perf_counter_ns()
        first = self._first or now
        done = {**self._head(), **self._content(text, tool_calls), "done": True}
        done |= {"done_reason": "stop" if reason == "tool_calls" else reason, "total_duration": now - self._started}
        if finish is not None:
            done |= {
                "load_duration": 0,
                "prompt_eval_count": finish.usage.prompt_tokens,
                "prompt_eval_duration": first - self._started,
                "eval_count": finish.usage.completion_tokens,
                "eval_duration": now - first,
            }
        return done

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": _timestamp(time.time())}

    def _content(self, text: str, tool_calls: Sequence[ToolCallDelta] = ()) -> dict[str, Any]:
        if self._field == "response":
            return {"response": text}
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if tool_calls:
            message["tool_calls"] = [_tool_call(call) for call in tool_calls]
        return {"message": message}


def _tool_call(call: ToolCallDelta) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": json.loads(call.arguments)}}


def _timestamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
