"""From a parsed request to its response: settings, submission, the stream of deltas, whole or as events."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from starlette.requests import Request
from starlette.responses import Response

from ...llm.defaults import FILTERS, PENALTIES
from ...llm.engine.embeddings import Segment
from ...llm.engine.output import Admitted, Piece
from ...llm.settings import MAX_NEW_TOKENS, GenerateSettings, SamplingParams
from ...llm.text_model import TextModel
from ...llm.thinking import ReasoningEffort
from ..backend import Event, RequestUsage, Stream, StreamEnd
from ..bodies import RequestBody
from ..clients import client_of, clock_of, until_disconnect
from ..config import Config
from ..errors import ApiError
from ..images import prompt_items
from ..responses import EventStream, JsonResponse
from ..served_models import ServedModel
from ..service import MAX_SEED, Service
from ..telemetry import Metrics
from .requests import (
    ChatSchemaFormat,
    ChoiceFields,
    JsonObjectFormat,
    NamedSchema,
    ResponsesSchemaFormat,
    TextFormat,
    ThinkingFields,
)
from .response_types import CompletionUsage, FinishReason
from .tools import CallSyntax, TextDelta, ToolCallDelta, ToolCallParser, ToolConfig, constrain_to_tools

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


# -- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParsedRequest:
    """A request in tokens and checked settings."""

    model: ServedModel
    prompts: Sequence[tuple[Segment, ...]]  # one for each response
    params: SamplingParams
    stream: bool
    include_usage: bool  # at the end of a stream
    calls: CallSyntax | None = None  # of tools, if there can be any


def checked_params(config: Config, text: TextModel, settings: GenerateSettings) -> SamplingParams:
    """Return the settings of a request, checked here and nowhere after, with the model's defaults for those that are
    not set. It runs in a thread: writing a schema as JSON takes a moment."""
    params = text.sampling_params(settings)
    limit = config.max_schema_bytes
    if params.constraint is not None and len(params.constraint.source) > limit:
        raise ApiError(
            422, f"the schema: expected at most {limit} bytes (max_schema_bytes), got {len(params.constraint.source)}"
        )
    return params


SAMPLING_FIELDS = (*FILTERS, *PENALTIES)


def sampling_settings(body: RequestBody, chosen_seed: int | None) -> GenerateSettings:
    """Return the sampling settings that a request sets, and a seed. The model's defaults apply to the others."""
    named = {name: value for name in SAMPLING_FIELDS if (value := getattr(body, name, None)) is not None}
    numbers = {name: value if isinstance(value, int) else float(value) for name, value in named.items()}
    settings = cast(GenerateSettings, numbers)
    if "top_k" in settings:
        settings["top_k"] = max(settings["top_k"], 0)
    if settings.get("top_p") == 0:  # greedy, as in OpenAI's API
        settings["temperature"], settings["top_p"] = 0.0, 1.0
    # With defaults alone, the response is that of all front ends; otherwise it is random, as in OpenAI's API.
    drawn = secrets.randbelow(MAX_SEED) if settings else 0
    settings["seed"] = drawn if chosen_seed is None else chosen_seed % (MAX_SEED + 1)
    return settings


def choice_settings(body: ChoiceFields) -> GenerateSettings:
    """Return the settings that chats and completions share."""
    return {
        **sampling_settings(body, body.seed),
        "logit_bias": {int(token): float(bias) for token, bias in body.logit_bias.items()},
        "stop": body.stop,
    }


def thinking_settings(body: ThinkingFields, effort: ReasoningEffort | None) -> GenerateSettings:
    """Return what a request sets of the thought before the answer."""
    variables = body.chat_template_kwargs
    switches = (body.enable_thinking, variables.enable_thinking, variables.thinking)
    return {
        "think": next((switch for switch in switches if switch is not None), None),
        "reasoning_effort": effort or variables.reasoning_effort,
        "thinking_budget": body.thinking_budget,
    }


def output_tokens(config: Config, **requested: int | None) -> int:
    """Return the maximum length of a response: the first of the fields that is set, or the default."""
    for name, value in requested.items():
        if value is not None:
            at_most(name, value, config.max_output_tokens, "max_output_tokens")
            return value
    return min(MAX_NEW_TOKENS, config.max_output_tokens)


def at_most(name: str, value: int, limit: int, option: str) -> None:
    """Raise ApiError 400 if a field exceeds an option of the server."""
    if value > limit:
        raise ApiError(400, f"{name}: expected at most {limit} (the server's {option}), got {value}", param=name)


def stream_usage(body: ChoiceFields) -> bool:
    """Return whether a stream ends with its usage."""
    if body.stream_options is None:
        return False
    if not body.stream:
        raise ApiError(400, "stream_options: allowed only with stream", param="stream_options")
    return body.stream_options.include_usage


def response_schema(
    format: TextFormat | JsonObjectFormat | ChatSchemaFormat | ResponsesSchemaFormat | None, param: str, config: Config
) -> Mapping[str, Any] | None:
    """Return the JSON schema that a response has to follow."""
    if isinstance(format, JsonObjectFormat):
        return ANY_OBJECT
    if format is None or isinstance(format, TextFormat):
        return None
    named: NamedSchema = format.json_schema if isinstance(format, ChatSchemaFormat) else format
    limit, size = config.max_schema_bytes, len(json.dumps(named.schema_))
    if size > limit:
        raise ApiError(422, f"{param}: expected at most {limit} bytes (max_schema_bytes), got {size}", param=param)
    return named.schema_


def constrain_response(
    settings: GenerateSettings, tools: ToolConfig, schema: Mapping[str, Any] | None, text: TextModel
) -> CallSyntax | None:
    """Add what a response has to follow to its settings. Return the syntax of tool calls, if there can be any."""
    if tools.choice != "none":
        return constrain_to_tools(settings, tools, schema, text)
    if schema is not None:
        settings["json_schema"] = schema
    return None


# -- deltas ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReasoningDelta:
    """Text of the thought before the answer."""

    text: str


@dataclass(frozen=True)
class FinishEvent:
    """The last delta. `cut` is set if a timeout or the end of the server cut the response short."""

    finish: FinishReason
    usage: RequestUsage
    cut: str | None = None
    stop_string: str | None = None  # that ended the text


Delta = ReasoningDelta | TextDelta | ToolCallDelta | FinishEvent


class InstrumentedStream:
    """The deltas of one response, with metrics. `close` cancels a response that has not ended.

    With `calls`, tool calls are separated from the text, and stop strings end the text outside of them. Without, the
    engine has handled stop strings already. The engine has separated the reasoning.
    """

    def __init__(
        self,
        prompt: tuple[Segment, ...],
        stream: Stream,
        text: TextModel,
        metrics: Metrics,
        log: dict[str, Any],
        calls: CallSyntax | None = None,
    ) -> None:
        self.prompt = prompt
        self._stream = stream
        self._events = aiter(stream)
        self._stop_tokens = text.stop_tokens
        self._metrics = metrics
        self._log = log
        self._parser = ToolCallParser(text, calls) if calls is not None else None
        self._started = self._last_token = time.perf_counter()
        self._ended = False
        self._pending: list[Piece] = []  # whose channel is not known yet
        self._first: Event | None = None  # read by `wait_for_first_token`

    async def wait_for_first_token(self) -> None:
        """Wait for the first token. Raise a failure until then, while the response can still have an error status."""
        while isinstance(event := await self._next(), Admitted):
            pass
        self._first = event

    async def _next(self) -> Event:
        event = await anext(self._events)
        self._measure(event)
        return event

    async def __aiter__(self) -> AsyncIterator[Delta]:
        parser = self._parser
        while True:  # until StreamEnd, the last event of every stream that does not fail
            event, self._first = self._first or await self._next(), None
            if isinstance(event, StreamEnd):
                for delta in self._flush():
                    yield delta
                yield _finish(event, parser)
                return
            if not isinstance(event, Piece) or (parser is not None and parser.stopped):
                continue
            for delta in self._deltas(event):
                yield delta
            if parser is not None and parser.stopped:
                await self._stream.cancel()

    def _deltas(self, piece: Piece) -> Iterator[Delta]:
        if piece.kind == "pending":
            self._pending.append(piece)
            return
        pieces, self._pending = [*self._pending, piece], []
        if piece.kind == "answer":
            for each in pieces:
                yield from self._answer(each)
            return
        if piece.reasoning:
            yield ReasoningDelta(piece.reasoning)
        if self._parser is not None:
            yield from self._parser.begin_answer(piece.text)
        elif piece.text:
            yield TextDelta(piece.text)

    def _answer(self, piece: Piece) -> Iterator[Delta]:
        if self._parser is None:
            yield TextDelta(piece.text, None if piece.token in self._stop_tokens else piece)
        elif not self._parser.stopped:
            yield from self._parser.push(piece)

    def _flush(self) -> Iterator[Delta]:
        for piece in self._pending:
            yield from self._answer(piece)
        if self._parser is not None:
            yield from self._parser.flush()

    @property
    def usage(self) -> RequestUsage:
        return self._stream.usage

    def _measure(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, Admitted):
            self._metrics.queue.observe(now - self._started)
            self._log.setdefault("queue_ms", round(1000 * (now - self._started), 1))
        elif isinstance(event, StreamEnd):
            self._record_end(event.reason)
        elif self._last_token == self._started:
            seconds = now - self._started + self._log.get("load_ms", 0.0) / 1000
            self._log.setdefault("first_token_ms", round(1000 * seconds, 1))
            self._metrics.first_token.observe(seconds)
            self._last_token = now
        else:
            self._metrics.inter_token.observe(now - self._last_token)
            self._last_token = now

    def _record_end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        self._metrics.finished.labels(reason).inc()
        self._log.setdefault("finish", []).append(reason)
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
            self._log[name] = self._log.get(name, 0) + getattr(self.usage, name)

    async def close(self) -> None:
        """Cancel the rest. The usage is recorded in any case."""
        if not self._ended:
            await self._stream.cancel()
            self._record_end("cancelled")


def _finish(end: StreamEnd, parser: ToolCallParser | None) -> FinishEvent:
    if parser is not None and parser.stopped:
        return FinishEvent("stop", end.usage, stop_string=parser.stop_string)
    if end.reason in ("cancelled", "deadline"):
        return FinishEvent("length", end.usage, end.reason)
    if parser is not None and parser.calls and end.reason == "stop":
        return FinishEvent("tool_calls", end.usage)
    return FinishEvent("stop" if end.reason == "stop" else "length", end.usage, stop_string=end.stop_string)


# -- responses -------------------------------------------------------------------------------------------------------


@dataclass
class Choice:
    """One complete response."""

    texts: list[str] = field(default_factory=list)  # of the deltas: joining them for each would copy all of them
    thoughts: list[str] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    tool_calls: list[ToolCallDelta] = field(default_factory=list)
    finish: FinishEvent | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def reasoning(self) -> str:
        return "".join(self.thoughts)

    def add(self, delta: Delta) -> None:
        if isinstance(delta, FinishEvent):
            self.finish = delta
        elif isinstance(delta, ToolCallDelta):
            self.tool_calls.append(delta)
        elif isinstance(delta, ReasoningDelta):
            self.thoughts.append(delta.text)
        else:
            self.texts.append(delta.text)
            if delta.piece is not None:
                self.pieces.append(delta.piece)


class ResponseFormatter(Protocol):
    """How an endpoint writes its responses."""

    named_events: bool

    def whole(self, choices: Sequence[Choice], usage: CompletionUsage) -> Mapping[str, object]: ...

    def opening(self, usages: Sequence[RequestUsage]) -> Iterable[Mapping[str, object]]:
        """Return the events before the first token of any response. The responses have used this so far."""

    def events(self, index: int, delta: Delta) -> Iterable[Mapping[str, object]]:
        """Return the events for a delta of response `index`."""

    def closing(self, usage: CompletionUsage) -> Iterable[Mapping[str, object]]: ...


async def respond(
    request: Request,
    service: Service,
    parsed: ParsedRequest,
    formatter: ResponseFormatter,
    stream_type: type[EventStream] = EventStream,
) -> Response:
    """Submit a request and return its response. If the client disconnects, its slots are freed."""
    log = request.scope["state"]["log"]
    log |= {"model": parsed.model.name, "stream": parsed.stream, "choices": len(parsed.prompts)}
    prompts = [prompt_items(prompt) for prompt in parsed.prompts]
    submitting = service.submit(parsed.model, prompts, parsed.params, client_of(request), clock_of(request))
    streams = await until_disconnect(request.receive, submitting)
    text = parsed.model.text
    responses = [
        InstrumentedStream(prompt, stream, text, service.metrics, log, parsed.calls)
        for prompt, stream in zip(parsed.prompts, streams, strict=True)
    ]
    streaming = False
    try:
        await until_disconnect(request.receive, responses[0].wait_for_first_token())
        if parsed.stream:
            streaming = True
            return stream_type(
                _events(responses, formatter, parsed.include_usage),
                lambda: _close(responses),
                write_timeout=service.config.write_timeout,
                named=formatter.named_events,
            )
        choices = await until_disconnect(request.receive, _gather(responses))
        return JsonResponse(formatter.whole(choices, _total_usage(responses)))
    finally:
        if not streaming:
            await _close(responses)


async def _close(responses: Sequence[InstrumentedStream]) -> None:
    for response in responses:
        await response.close()


async def _gather(responses: Sequence[InstrumentedStream]) -> list[Choice]:
    async def gather(response: InstrumentedStream) -> Choice:
        choice = Choice()
        async for delta in response:
            choice.add(delta)
        return choice

    return list(await asyncio.gather(*map(gather, responses)))


async def _events(
    responses: Sequence[InstrumentedStream], formatter: ResponseFormatter, include_usage: bool
) -> AsyncIterator[Mapping[str, object]]:
    for event in formatter.opening([response.usage for response in responses]):
        yield event
    if len(responses) == 1:
        async for delta in responses[0]:
            for event in formatter.events(0, delta):
                yield event
    else:
        async for index, delta in _merge(responses):
            for event in formatter.events(index, delta):
                yield event
    if include_usage:
        for event in formatter.closing(_total_usage(responses)):
            yield event


async def _merge(responses: Sequence[InstrumentedStream]) -> AsyncIterator[tuple[int, Delta]]:
    """Yield the deltas of several responses as they arrive. The first failure ends all."""
    queue: asyncio.Queue[tuple[int, Delta | BaseException | None]] = asyncio.Queue()

    async def pump(index: int, response: InstrumentedStream) -> None:
        try:
            async for delta in response:
                queue.put_nowait((index, delta))
            queue.put_nowait((index, None))
        except Exception as error:
            queue.put_nowait((index, error))

    pumps = [asyncio.ensure_future(pump(index, response)) for index, response in enumerate(responses)]
    try:
        active = len(pumps)
        while active:
            index, delta = await queue.get()
            if isinstance(delta, BaseException):
                raise delta
            if delta is None:
                active -= 1
            else:
                yield index, delta
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


def _total_usage(responses: Sequence[InstrumentedStream]) -> CompletionUsage:
    """Return the usage of all responses. A prompt that several share counts once, as in OpenAI's API."""
    prompts = {response.prompt: response.usage for response in reversed(responses)}
    prompt = sum(usage.prompt_tokens for usage in prompts.values())
    completion = sum(response.usage.completion_tokens for response in responses)
    cached = sum(usage.cached_tokens for usage in prompts.values())
    total: CompletionUsage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    if reasoning := sum(response.usage.reasoning_tokens for response in responses):
        total["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return total
