"""The app over a backend that does as it is reported: what clients see when things go wrong, and when they leave."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import shlex
from typing import Any

import pytest

from tests.support.harness.stand_in import Asked, StandIn, StandInCompiler
from tests.support.models.tokenizers import byte_level
from webpte.errors import DeviceLost, OutOfMemory, QueueFullError
from webpte.llm import settings
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.errors import DeadlineExceeded, QueueFull, WorkerUnavailable
from webpte.serve.processes import trim

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "stand-in", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
HERMES = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}
TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


@pytest.fixture
def serving(tmp_path, monkeypatch):
    """Runs `check(backend, made app)` with the app started. Schemas are compiled in this process."""
    monkeypatch.setattr("webpte.serve.served_models.SchemaCompiler", StandInCompiler)

    def run(check, config: Config | None = None, **more: Any):
        async def whole():
            backend = StandIn(tmp_path, byte_level(), **more)
            application = app(backend, config or Config(schema_timeout=60))
            async with application.router.lifespan_context(application):
                return await check(backend, application)

        return asyncio.run(whole())

    return run


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (QueueFull("64 wait already", retry_after=2.5), 429, "rate_limit_error"),
        (QueueFullError("the worker has more than it takes"), 429, "rate_limit_error"),
        (WorkerUnavailable("there is no worker"), 503, "server_error"),
        (DeviceLost("the device is gone"), 503, "server_error"),
        (OutOfMemory("the device is out of memory"), 503, "server_error"),
        (DeadlineExceeded("it waited 60 s for a slot", "queue"), 504, "server_error"),
        (RuntimeError("a bug"), 500, "server_error"),
    ],
)
def test_serve_backend_error_has_status(serving, error, status, kind):
    async def check(backend, application):
        backend.fails = error
        return await Asked(application, CHAT, HELLO).answer()

    response = serving(check)
    assert response.status == status and response.json["error"]["type"] == kind and "x-request-id" in response.headers
    if status in (429, 503):
        assert int(response.headers["retry-after"]) >= 1
    if isinstance(error, QueueFull):
        assert response.headers["retry-after"] == "3"  # never sooner than reported
    if status == 500:
        assert (
            "a bug" not in response.json["error"]["message"]
            and response.headers["x-request-id"] in response.json["error"]["message"]
        )
    else:
        assert str(error) in response.json["error"]["message"]


def test_serve_refused_choice_cancels_others(serving):
    async def check(backend, application):
        first = backend.generate

        def second(*arguments, **options):
            if backend.streams:
                raise QueueFull("full")
            return first(*arguments, **options)

        backend.generate = second
        response = await Asked(application, CHAT, HELLO | {"n": 3}).answer()
        return response.status, [stream.cancelled for stream in backend.streams]

    assert serving(check) == (429, [True])


def test_serve_stream_failure_is_last_event(serving):
    async def check(backend, application):
        backend.fails_at_end = WorkerUnavailable("the worker is gone for good")
        return await Asked(application, CHAT, HELLO | {"stream": True}).answer()

    response = serving(check)
    assert response.status == 200 and response.events[-1]["error"]["message"] == "the worker is gone for good"
    assert response.events[-1]["error"]["type"] == "server_error"


@pytest.mark.parametrize("stream", [True, False])
def test_serve_disconnect_frees_slot(serving, stream, caplog):
    async def check(backend, application):
        backend.go.clear()
        asked = Asked(application, CHAT, HELLO | {"stream": stream, "n": 2})
        if stream:
            await asked.until(lambda: b"content" in asked.body)
        else:
            while len(backend.streams) < 2:
                await asyncio.sleep(0.01)
        asked.leave()
        await asked.answer()
        return [one.cancelled for one in backend.streams]

    with caplog.at_level(logging.INFO, "webpte.serve"):
        assert serving(check, Config(shutdown_timeout=0)) == [True, True]  # nothing is under way that could end
    (line,) = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert line["status"] == 499 and line["finish"] == ["cancelled", "cancelled"] and line["prompt_tokens"] > 0


def test_serve_disconnect_while_reading_body_is_not_an_error(serving, caplog):
    async def check(backend, application):
        async def gone():
            return {"type": "http.disconnect"}

        async def left(scope, _, send):
            await application(scope, gone, send)

        return await Asked(left, CHAT, HELLO).answer()

    with caplog.at_level(logging.INFO, "webpte.serve"):
        assert serving(check).status == 0  # no one is there to be reported
    assert [(record.levelname, record.fields["status"]) for record in caplog.records] == [("INFO", 499)]


def test_serve_unread_response_times_out(serving):
    async def check(backend, application):
        async def unread(scope, receive, send):
            async def stuck(message):
                if message["type"] == "http.response.body":
                    await asyncio.Event().wait()

            await application(scope, receive, stuck)

        await Asked(unread, CHAT, HELLO | {"stream": True}).answer()
        return [one.cancelled for one in backend.streams]

    assert serving(check, Config(write_timeout=0.05)) == [True]


def test_serve_shutdown_sends_partial_response(serving):
    """A stream under way gets a last event; a new request is refused."""

    async def check(backend, application):
        backend.go.clear()
        asked = Asked(application, CHAT, HELLO | {"stream": True, "stream_options": {"include_usage": True}})
        await asked.until(lambda: b"content" in asked.body)
        ending = asyncio.ensure_future(application.state.service.stop())
        await asyncio.sleep(0.05)
        late = await Asked(application, CHAT, HELLO).answer()
        await ending
        await asked.answer()
        health = await Asked(application, "/health", None).answer()
        return asked, late, health

    asked, late, health = serving(check, Config(shutdown_timeout=0.3))
    assert late.status == 503 and health.status == 503
    *_, last, usage = asked.events
    assert last["choices"][0]["finish_reason"] == "length" and last["choices"][0]["stop_reason"] == "cancelled"
    assert usage["usage"]["completion_tokens"] >= 1 and asked.body.endswith(b"data: [DONE]\n\n")


def test_serve_slow_body_returns_408(serving):
    async def check(backend, application):
        async def receive():
            await asyncio.Event().wait()

        async def slow(scope, _, send):
            await application(scope, receive, send)

        return await Asked(slow, CHAT, HELLO).answer()

    response = serving(check, Config(read_timeout=0.05))
    assert response.status == 408 and response.json["error"]["code"] == "body_too_slow"


def test_giving_memory_back_does_no_harm():
    """Whatever the C library is."""
    kept = [bytes(1000) for _ in range(1000)]
    trim()
    assert all(len(each) == 1000 for each in kept)


@pytest.mark.parametrize("depth", [100, 400, 900])
def test_hostile_schemas_are_refused_without_a_stir(serving, depth):
    schema: dict[str, Any] = {"type": "string", "uniqueItems": True}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}

    async def check(backend, application):
        body = HELLO | {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
        response = await Asked(application, CHAT, body).answer()
        return response, await Asked(application, CHAT, HELLO).answer()

    response, after = serving(check)
    assert response.status in (400, 422) and response.json["error"]["message"] and after.status == 200


# -- calls of tools ---------------------------------------------------------------------------------------------------

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
SAID: dict[str, tuple[str, str, list[str], str]] = {
    "a call": (CALL, "", ['{"a": 1}'], "tool_calls"),
    "two": (CALL + CALL, "", ['{"a": 1}', '{"a": 1}'], "tool_calls"),
    "text before it": ("Well: " + CALL, "Well: ", ['{"a": 1}'], "tool_calls"),
    "no call": ("2 < 3 <tool", "2 < 3 <tool", [], "stop"),
    "no call between the markers": ("<tool_call>no</tool_call>", "<tool_call>no</tool_call>", [], "stop"),
    "half a call": ("So <tool_call>{", "So ", [], "stop"),
    "a stop outside": ("a STOP b", "a ", [], "stop"),
    "a stop inside": (CALL.replace("1", '"STOP"'), "", ['{"a": "STOP"}'], "tool_calls"),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", SAID)
def test_calls_are_taken_out_of_the_text(serving, name, stream):
    says, text, arguments, finish = SAID[name]

    async def check(backend, application):
        body = HELLO | {"tools": [TOOL], "stream": stream, "stop": "STOP", "max_tokens": 500}
        response = await Asked(application, CHAT, body).answer()
        assert response.status == 200, response.body
        params = backend.streams[0].params
        assert not params.stop and params.constraint.kind == "grammar"
        return response

    response = serving(check, says=says, tool_format=HERMES)
    if stream:
        choices = [event["choices"][0] for event in response.events]
        content = "".join(choice["delta"].get("content") or "" for choice in choices)
        calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
        assert [call["index"] for call in calls] == list(range(len(calls)))
        assert choices[-1]["finish_reason"] == finish
    else:
        (choice,) = response.json["choices"]
        content, calls = choice["message"]["content"] or "", choice["message"].get("tool_calls", [])
        assert choice["finish_reason"] == finish
    assert content == text and [call["function"]["arguments"] for call in calls] == arguments
    assert len({call["id"] for call in calls}) == len(calls)


def test_serve_model_without_tools_refuses_them(serving):
    async def check(backend, application):
        return await Asked(application, CHAT, HELLO | {"tools": [TOOL]}).answer()

    response = serving(check)
    assert response.status == 400 and response.json["error"]["param"] == "tools"


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}], ids=["text", "tools"])
@pytest.mark.parametrize(("stop", "numbers"), [(["x"] * 17, ("16", "17")), (["x" * 1025] * 4, ("4096", "4100"))])
def test_stop_strings_beyond_the_bound_are_refused_with_both_numbers(serving, stop, numbers, more):
    async def check(backend, application):
        bodies = {CHAT: {"stop": stop}, "/api/chat": {"options": {"stop": stop}}}
        return [await Asked(application, path, HELLO | more | body).answer() for path, body in bodies.items()]

    openai, ollama = serving(check, tool_format=HERMES)
    assert openai.status == ollama.status == 400 and openai.json["error"]["param"] == "stop"
    assert all(number in openai.json["error"]["message"] for number in numbers)
    assert all(number in ollama.json["error"] for number in numbers)


def test_serve_checks_each_setting_once(serving, monkeypatch):
    checked = []

    def check_temperature(value):
        checked.append(value)
        return value

    monkeypatch.setitem(settings.CHECKS, "temperature", check_temperature)

    async def check(backend, application):
        await Asked(application, CHAT, HELLO | {"n": 3, "temperature": 0.5}).answer()
        return [stream.params.temperature for stream in backend.streams]

    assert serving(check) == [0.5] * 3 and checked == [0.5]


def test_serve_seed_differs_per_choice(serving):
    async def check(backend, application):
        await Asked(application, CHAT, HELLO | {"n": 3, "seed": (1 << 31) - 2}).answer()
        return [stream.params.seed for stream in backend.streams]

    assert serving(check) == [(1 << 31) - 2, (1 << 31) - 1, 0]


def test_lines_of_the_log_are_json(serving, caplog):
    from webpte.serve.telemetry import LogFormatter

    async def check(backend, application):
        await Asked(application, CHAT, HELLO, {"x-request-id": "one"}).answer()

    with caplog.at_level(logging.INFO, "webpte.serve"):
        serving(check)
    (record,) = [each for each in caplog.records if each.getMessage() == "request"]
    line = json.loads(LogFormatter(True).format(record))
    assert line["id"] == "one" and line["level"] == "info" and line["status"] == 200 and line["time"].endswith("Z")
    assert "id=one" in LogFormatter(False).format(record)


@pytest.mark.parametrize(
    ("log_format", "terminal", "as_json"),
    [("auto", True, False), ("auto", False, True), ("json", True, True), ("text", False, False)],
)
def test_log_is_text_on_a_terminal_and_json_elsewhere(monkeypatch, log_format, terminal, as_json):
    from webpte.serve import telemetry

    names = ("webpte", "uvicorn", "uvicorn.access")
    before = [(log := logging.getLogger(name), log.handlers[:], log.propagate, log.level) for name in names]
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stderr", stream)
    try:
        telemetry.configure_logging("info", log_format)
        logging.getLogger("webpte.serve").info("loading", extra={"fields": {"model": "a\nb"}})
    finally:
        for log, handlers, propagate, level in before:
            log.handlers[:], log.propagate, log.disabled = handlers, propagate, False
            log.setLevel(level)
    line = stream.getvalue()
    assert line.count("\n") == 1
    if as_json:
        assert json.loads(line)["model"] == "a\nb"
    else:
        assert " info loading model=" in line


def test_index_names_models_endpoints_and_a_command_that_works(serving):
    async def check(backend, application):
        index = await Asked(application, "/", None, {"host": "localhost:8123"}).answer()
        words = shlex.split(index.json["example"])
        assert words[:1] + words[2:3] == ["curl", "-d"] and words[1].startswith("http://localhost:8123/")
        form = {"content-type": "application/x-www-form-urlencoded"}
        sent = await Asked(
            application, words[1].removeprefix("http://localhost:8123"), words[3].encode(), form
        ).answer()
        return index, sent, await Asked(application, "/nowhere", None).answer()

    index, sent, other = serving(check)
    assert index.status == 200 and index.json["models"] == {"stand-in": "language"} and sent.status == 200
    assert "POST /v1/chat/completions" in index.json["endpoints"] and "GET /health" in index.json["endpoints"]
    assert other.status == 404 and "GET /nowhere" in other.json["error"]["message"]


def test_index_needs_a_key_where_others_do(serving):
    async def check(backend, application):
        key = {"authorization": "Bearer secret"}
        return [(await Asked(application, "/", None, headers).answer()) for headers in ({}, key)]

    refused, response = serving(check, Config(api_keys=("secret",)))
    assert refused.status == 401 and response.status == 200
    assert "Authorization: Bearer" in response.json["example"] and b"secret" not in response.body


def test_unknown_field_is_ignored_with_one_warning(serving, caplog):
    async def check(backend, application):
        bodies = [HELLO | {"temprature": 1}, HELLO | {"temprature": 1, "x" * 500: 1}]
        return [(await Asked(application, CHAT, body).answer()).status for body in bodies]

    with caplog.at_level(logging.WARNING, "webpte.serve"):
        assert serving(check) == [200, 200]
    first, second = [record.fields for record in caplog.records]
    assert first == {"field": "temprature", "similar": "temperature"} and len(second["field"]) == 80


def test_warnings_of_unknown_fields_are_bounded(serving, caplog):
    async def check(backend, application):
        await Asked(application, CHAT, HELLO | {f"x{number}": 1 for number in range(1000)}).answer()

    with caplog.at_level(logging.WARNING, "webpte.serve"):
        serving(check)
    assert len(caplog.records) == 256


def test_strict_server_refuses_unknown_fields(serving):
    async def check(backend, application):
        return await Asked(application, CHAT, HELLO | {"temprature": 1}).answer()

    response = serving(check, Config(strict=True))
    assert response.status == 400 and response.json["error"]["param"] == "temprature"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 200),
        ({"content-type": ""}, 200),
        ({"content-type": "text/plain", "origin": "http://localhost:8000"}, 415),
        ({"content-type": "application/x-www-form-urlencoded", "origin": "null"}, 415),
        ({"content-type": "text/plain", "sec-fetch-site": "cross-site"}, 415),
        ({"content-type": "application/json", "origin": "http://localhost:8000"}, 200),
    ],
)
def test_pages_must_send_json_and_other_clients_may_send_any_type(serving, headers, status):
    async def check(backend, application):
        return await Asked(application, CHAT, HELLO, headers).answer()

    assert serving(check).status == status


@pytest.mark.parametrize(
    ("host", "config", "status"),
    [
        ("127.0.0.1:8000", {}, 200),
        ("localhost", {}, 200),
        ("[::1]:8000", {}, 200),
        ("LOCALHOST:1", {}, 200),
        ("evil.example", {}, 403),
        ("evil.example:8000", {}, 403),
        ("127.0.0.1.evil.example", {}, 403),
        ("localhost:80@evil.example", {}, 403),
        ("localhost:evil.example", {}, 403),
        ("[::1]evil.example", {}, 403),
        ("[::1]:8000", {}, 200),
        ("", {}, 403),
        ("chat.example", {"allowed_hosts": ("chat.example",)}, 200),
        ("evil.example", {"allowed_hosts": ("chat.example",)}, 403),
        ("evil.example", {"host": "0.0.0.0", "allow_unauthenticated": True}, 200),
        ("evil.example", {"host": "0.0.0.0", "allowed_hosts": ("chat.example",)}, 403),
    ],
)
def test_host_header_must_name_the_server(serving, host, config, status):
    async def check(backend, application):
        return await Asked(application, CHAT, HELLO, {"host": host}).answer()

    response = serving(check, Config(**config).with_loopback_hosts())
    assert response.status == status
    if status == 403:
        assert response.json["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize("endpoint", [CHAT, "/v1/completions", "/tokenize"])
def test_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(serving, endpoint, monkeypatch):
    monkeypatch.setattr("webpte.llm.tokenizer.Tokenizer._encoding", lambda *_: pytest.fail("it was tokenized"))
    text = "word " * 100_000
    body: dict[str, Any] = {"model": "stand-in"} | (
        {"messages": [{"role": "user", "content": text}]} if endpoint == CHAT else {"prompt": text}
    )

    async def check(backend, application):
        return await Asked(application, endpoint, body).answer()

    response = serving(check)
    assert response.status == 400 and response.json["error"]["code"] == "context_length_exceeded"
    assert "500,0" in response.json["error"]["message"]


def test_host_header_of_an_application_in_another_server_is_not_checked(serving):
    """It does not know where that server listens."""

    async def check(backend, application):
        return await Asked(application, CHAT, HELLO, {"host": "chat.example"}).answer()

    assert serving(check, Config()).status == 200


@pytest.mark.parametrize(
    ("keys", "changes", "same"),
    [
        ((), {"address": "10.0.0.2"}, False),
        ((), {"headers": {"authorization": "Bearer another"}}, True),
        ((), {"headers": {"x-forwarded-for": "10.0.0.2"}}, True),
        (("one", "two"), {"address": "10.0.0.2"}, True),
        (("one", "two"), {"headers": {"authorization": "Bearer two"}}, False),
    ],
)
def test_client_is_known_by_its_key_or_else_by_its_address(serving, keys, changes, same):
    async def check(backend, application):
        first = {"headers": {"authorization": "Bearer one"}}
        for more in (first, first | changes):
            assert (await Asked(application, CHAT, HELLO, **more).answer()).status == 200
        one, other = (stream.client for stream in backend.streams)
        assert (one == other) == same and "one" not in one

    serving(check, Config(api_keys=keys))


def test_serve_client_over_limit_refused_others_served(serving):
    async def check(backend, application):
        backend.go.clear()
        first = [Asked(application, CHAT, HELLO) for _ in range(3)]
        while len(backend.streams) < 3:
            await asyncio.sleep(0.01)
        refused = await Asked(application, "/tokenize", {"model": "stand-in", "prompt": "x"}).answer()
        health = await Asked(application, "/health", None).answer()
        other = await Asked(application, "/tokenize", {"model": "stand-in", "prompt": "x"}, address="10.0.0.2").answer()
        backend.go.set()
        assert [(await each.answer()).status for each in first] == [200] * 3
        again = await Asked(application, "/tokenize", {"model": "stand-in", "prompt": "x"}).answer()
        return refused, [each.status for each in (refused, health, other, again)]

    refused, statuses = serving(check, Config(slots=2, max_queue=1))
    assert statuses == [429, 200, 200, 200] and refused.headers["retry-after"] == "1"
    assert refused.json["error"]["code"] == "too_many_requests"
