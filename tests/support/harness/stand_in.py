"""A backend without a worker, whose answers a test sets, and requests to an app without a network."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.harness.api_schemas import check_response
from webpte.errors import Error
from webpte.llm.constraints import Constraint, GrammarCompiler
from webpte.llm.engine.output import Admitted, Piece
from webpte.llm.settings import SamplingParams
from webpte.llm.tokenizer import Tokenizer
from webpte.serve.accounts import Accounts
from webpte.serve.backend import Event, ModelStatus, RequestUsage, Stats, StreamEnd
from webpte.serve.messages import ModelFile, ModelInfo, TextFiles, Transcribed

CHAT = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
)


class StandInStream:
    """Pieces of a text, one for each of its tokens. It waits for `go` before each but the first."""

    def __init__(
        self,
        prompt: tuple[Any, ...],
        params: SamplingParams,
        tokens: Sequence[tuple[str, int]],
        go: asyncio.Event,
        fails: Error | None,
        client: str,
    ) -> None:
        self.prompt, self.params, self.client = prompt, params, client
        self.cancelled = False
        self._tokens = tokens
        self._go = go
        self._fails = fails
        self._given = 0
        self._ended = asyncio.Event()

    @property
    def usage(self) -> RequestUsage:
        return RequestUsage(len(self.prompt), 0, self._given)

    async def __aiter__(self) -> AsyncIterator[Event]:
        yield Admitted(0)
        for text, token in self._tokens[: self.params.max_new_tokens]:
            if self._given:
                await self._go_or_cancelled()
            if self.cancelled:
                yield StreamEnd("cancelled", self.usage)
                return
            self._given += 1
            yield Piece(text, token)
        if self._fails is not None:
            raise self._fails
        cut = len(self._tokens) > self.params.max_new_tokens
        yield StreamEnd("length" if cut else "stop", self.usage)

    async def _go_or_cancelled(self) -> None:
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._go, self._ended)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.sleep(0)

    async def cancel(self) -> None:
        self.cancelled = True
        self._ended.set()


class StandIn:
    """Answers all prompts with one text. `fails` is raised by `generate`, `fails_at_end` by a stream."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, says: str = "hello", tool_format: Any = None) -> None:
        tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tool_format": tool_format} if tool_format else {}))
        self._tokenizer = tokenizer
        self.says = says
        self.fails: Error | None = None
        self.fails_at_end: Error | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.streams: list[StandInStream] = []
        self.state = "ready"
        files = str(folder / "tokenizer.json"), str(folder / "tokenizer_config.json")
        end = tokenizer.token_id("<|im_end|>")
        assert end is not None
        language = TextFiles(*files, CHAT, (end,), None, (end,))
        size = tokenizer.backend_tokenizer.get_vocab_size()
        self.models = {"stand-in": ModelInfo("stand-in", "", "language", 512, size, 0, 4, "f", 1, language)}

    @property
    def statuses(self) -> dict[str, ModelStatus]:
        return {
            name: ModelStatus(ModelFile(name, info.path), info.kind, "loaded", info)
            for name, info in self.models.items()
        }

    async def hold(self, name: str, keep_alive: float | None = None, *_: Any) -> ModelInfo:
        return self.models[name]

    def release(self, name: str) -> None: ...

    def unload(self, name: str, client: str = "") -> bool:
        return False

    async def start(self) -> None: ...

    async def failed(self) -> Error:
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async def stop(self, grace: float) -> None:
        self.state = "stopped"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.go.wait(), grace)
        for stream in self.streams:
            await stream.cancel()

    def generate(
        self,
        model: str,
        tokens: tuple[Any, ...],
        params: SamplingParams,
        *,
        timeouts: object = None,
        client: str = "",
        version: str | None = None,
    ) -> StandInStream:
        if self.fails is not None:
            raise self.fails
        pieces = [(self._tokenizer.decode([token]), token) for token in self._tokenizer.encode(self.says)]
        self.streams.append(StandInStream(tokens, params, pieces, self.go, self.fails_at_end, client))
        return self.streams[-1]

    async def embed(
        self, model: str, rows: Sequence[Sequence[int]], deadline: float | None = None, *_: Any
    ) -> np.ndarray:
        raise NotImplementedError

    async def transcribe(self, model: str, samples: str, language: str | None, *_: Any, **__: Any) -> Transcribed:
        raise NotImplementedError

    def stats(self) -> Stats:
        return Stats(self.state, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0)  # type: ignore[arg-type]


class StandInCompiler:
    """Checks constraints in this process, and without limits."""

    def __init__(self, model: ModelInfo, accounts: Accounts) -> None:
        assert model.text is not None
        self._grammar_compiler = GrammarCompiler(
            Tokenizer.load(model.text.tokenizer), model.vocabulary, model.text.stop_tokens
        )

    async def check(self, constraint: Constraint, timeout: float, client: str) -> None:
        await asyncio.to_thread(self._grammar_compiler.check, constraint)

    async def close(self) -> None: ...


class Asked:
    """A request to an app, by ASGI itself: what was sent so far, and a client that may leave."""

    def __init__(
        self, app: Any, path: str, body: Any, headers: dict[str, str] | None = None, address: str = "127.0.0.1"
    ) -> None:
        self._method, self._path = "GET" if body is None else "POST", path
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self._left = asyncio.Event()
        self._sent = asyncio.Event()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._incoming = [{"type": "http.request", "body": data, "more_body": False}]
        fields = {"content-type": "application/json", "host": "localhost", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": self._method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in fields.items()],
            "client": (address, 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
            "http_version": "1.1",
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._incoming:
            return self._incoming.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        self.body += message.get("body", b"")
        self._sent.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Until what was sent is so."""
        while not true():
            self._sent.clear()
            await asyncio.wait_for(self._sent.wait(), 60)

    def leave(self) -> None:
        self._left.set()

    async def answer(self) -> Asked:
        """Wait for the end of the response. It has the form that `/openapi.json` describes, if the client stayed."""
        await asyncio.wait_for(self.task, 60)
        if not self._left.is_set() and "content-type" in self.headers:
            check_response(self._method, self._path, self.status, self.headers["content-type"], self.body.decode())
        return self

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]
