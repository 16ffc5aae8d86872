# mypy: disable-error-code="import-not-found"
"""Record what Open WebUI sends to a server: `python record_open_webui.py FOLDER clients.json`, beside `record.py`.

    pip download --no-deps open-webui     # unpacked into FOLDER
    pip install fastapi aiohttp aiocache aiofiles

Only the modules that build and send requests are run. Its other modules, which need a database and many packages, are
replaced by objects that accept every call.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import os
import sys
import tempfile
import types
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

from record import ANSWERS, ARGUMENTS, CHAT, EMBEDDER, Recorded, Server

NAME = "open-webui"
OWN = {"constants", "routers", "routers.openai", "utils", "utils.payload", "utils.misc", "utils.json_codec"}
OWN |= {"utils.session_pool", "utils.model_ids", "utils.headers", "utils.task", "utils.chat_variables"}
REAL = {"open_webui", *(f"open_webui.{name}" for name in OWN)}
REPLACED = ("open_webui", "typer", "uvicorn", "sqlalchemy", "jwt", "mimeparse", "engineio", "pytz")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "Return the weather of a city.", "parameters": CITY}


async def nothing(*_: object, **__: object) -> None: ...


class Settings:
    """The settings of an administrator."""

    values: ClassVar[dict[str, Any]] = {}

    @classmethod
    async def get(cls, name: str, default: Any = None) -> Any:
        return cls.values.get(name, default)

    @classmethod
    async def get_many(cls, *names: str) -> dict[str, Any]:
        return {name: cls.values.get(name) for name in names}


class Replaced(types.ModuleType):
    """A module that is not run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return VALUES.get(name, MagicMock(name=name))


VALUES: dict[str, Any] = {"Config": Settings, "check_model_access": nothing, "BYPASS_MODEL_ACCESS_CONTROL": True}
VALUES |= {"is_anthropic_url": lambda url: False, "Models": SimpleNamespace(get_model_by_id=nothing)}
VALUES |= {"ENABLE_ORJSON": False, "AIOHTTP_CLIENT_SESSION_SSL": False, "ENABLE_FORWARD_USER_INFO_HEADERS": False}
TIMEOUTS = ("AIOHTTP_CLIENT_TIMEOUT", "AIOHTTP_CLIENT_TIMEOUT_MODEL_LIST", "AIOHTTP_CLIENT_STREAM_IDLE_TIMEOUT")
VALUES |= dict.fromkeys((*TIMEOUTS, "AIOHTTP_POOL_DNS_TTL"), 60)
VALUES |= dict.fromkeys(("AIOHTTP_POOL_CONNECTIONS", "AIOHTTP_POOL_CONNECTIONS_PER_HOST"))
VALUES |= {"REDIS_KEY_PREFIX": "key", "MODELS_CACHE_TTL": 1, "CHAT_STREAM_RESPONSE_CHUNK_MAX_BUFFER_SIZE": None}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        is_replaced = name.partition(".")[0] in REPLACED and name not in REAL
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_replaced else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return Replaced(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def features(openai: Any, payload: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return what its chat does: the fields of its request, with the settings of a chat."""
    state = SimpleNamespace(OPENAI_MODELS={CHAT: {"urlIdx": 0}, EMBEDDER: {"urlIdx": 0}})
    user = SimpleNamespace(id="1", name="user", email="user@localhost", role="user")
    request: Any = SimpleNamespace(app=SimpleNamespace(state=state), state=SimpleNamespace(), cookies={}, headers={})

    async def ask(content: Any, stream: bool = True, more: dict[str, Any] | None = None, **params: Any) -> Any:
        body = {"model": CHAT, "messages": [{"role": "user", "content": content}], "stream": stream} | (more or {})
        if stream:
            body["stream_options"] = {"include_usage": True}
        body = payload.apply_model_params_to_body_openai(params, body)
        response = await openai.generate_chat_completion(request, body, user)
        return [part async for part in response.body_iterator] if stream else response

    async def result() -> Any:
        call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)}}
        asked = {"role": "user", "content": "Oslo?"}
        turns: list[Any] = [asked, {"role": "assistant", "content": "", "tool_calls": [call]}]
        turns.append({"role": "tool", "tool_call_id": "1", "content": "rain"})
        return await ask("", more={**tools, "messages": turns})

    tools = {"tools": [{"type": "function", "function": WEATHER}]}
    controls: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 8, "seed": 3, "stop": ["###"]}
    controls |= {"frequency_penalty": 0.1, "presence_penalty": 0.1, "min_p": 0.05}
    return {
        "models": lambda: openai.get_models_request("", Settings.values["openai.api_base_urls"][0], "none", user=user),
        "chat, streamed": lambda: ask("Hi"),
        "settings of a chat": lambda: ask("Hi", **controls),
        "title of a chat": lambda: ask("A title for a chat?", stream=False),
        "tools, streamed": lambda: ask("Oslo?", more=tools),
        "result of a tool": result,
        "embeddings": lambda: openai.embeddings(request, {"model": EMBEDDER, "input": ["a", "b"]}, user),
    }


async def record(server: Server, version: str) -> list[Recorded]:
    openai = importlib.import_module("open_webui.routers.openai")
    payload = importlib.import_module("open_webui.utils.payload")
    recorded: list[Recorded] = []
    for feature, use in features(openai, payload).items():
        server.requests.clear()
        answer = await use()
        assert answer is not None, feature
        for method, path, body, expected in server.requests:
            recorded.append(
                {"client": NAME, "version": version, "feature": feature, "method": method, "path": path, "body": body,
                 "answer": expected}
            )  # fmt: skip
    return recorded


def main() -> None:
    folder, path = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, Finder())
    os.environ["DATA_DIR"] = tempfile.mkdtemp()
    ANSWERS["/v1/models"] = lambda body: {"object": "list", "data": [{"id": CHAT, "object": "model", "created": 1}]}
    server = Server()
    Settings.values = {"openai.enable": True, "openai.api_base_urls": [f"{server.url}/v1"], "openai.api_keys": ["none"]}
    (version,) = (each.version for each in importlib.metadata.distributions(path=[str(folder)]) if each.name == NAME)
    recorded = asyncio.run(record(server, version))
    kept = [each for each in json.loads(path.read_text(encoding="utf-8")) if each["client"] != NAME]
    lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in [*kept, *recorded])
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
