# mypy: disable-error-code="import-not-found"
"""Record what frameworks send to a server: `python record.py OUT.json`, in an environment of their packages only.

    pip install langchain-openai langchain-ollama langchain-anthropic llama-index-llms-openai-like
    pip install llama-index-llms-ollama llama-index-embeddings-ollama llm llm-ollama

Each feature of a client is used against a server that keeps the requests. Its answers have the fields that the client
needs and few others, so a client that reads one proves the shape, which is written beside the requests.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

CHAT, EMBEDDER = "CHAT", "EMBEDDER"  # names that the test replaces by those of its models
TEXT = "Hello."
ARGUMENTS = {"city": "Oslo"}
SCHEMA = {
    "title": "City",
    "description": "A city.",
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Recorded(TypedDict):
    """A request, and the shape of an answer that the client reads."""

    client: str
    version: str
    feature: str
    method: str
    path: str
    body: Any
    answer: Any  # a list of events if it is streamed


def chat_answer(body: Any) -> Any:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)}}
    text = json.dumps(ARGUMENTS) if body.get("response_format") else TEXT
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    header = {"id": "1", "created": 1, "model": CHAT}
    if not body.get("stream"):
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if body.get("tools"):
            message |= {"content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {**header, "object": "chat.completion", "choices": [choice], "usage": usage}
    header["object"] = "chat.completion.chunk"
    deltas: list[Any] = [{"tool_calls": [{"index": 0, **call}]}] if body.get("tools") else [{"content": text}]
    events = [{**header, "choices": [{"index": 0, "delta": delta}]} for delta in ({"role": "assistant"}, *deltas)]
    events.append({**header, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append({**header, "choices": [], "usage": usage})
    return events


def completion_answer(body: Any) -> Any:
    answer = {"id": "1", "object": "text_completion", "created": 1, "model": CHAT}
    answer["choices"] = [{"index": 0, "text": TEXT, "finish_reason": "stop"}]
    return [answer] if body.get("stream") else answer


def messages_answer(body: Any) -> Any:
    header = {"id": "1", "type": "message", "role": "assistant", "model": CHAT}
    use = {"type": "tool_use", "id": "1", "name": "weather"}
    if not body.get("stream"):
        block = {**use, "input": ARGUMENTS} if body.get("tools") else {"type": "text", "text": TEXT}
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {**header, "content": [block], "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    start: dict[str, Any] = {**header, "content": [], "stop_reason": None, "stop_sequence": None}
    block = {**use, "input": {}} if body.get("tools") else {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": TEXT}
    if body.get("tools"):
        delta = {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)}
    return [
        {"type": "message_start", "message": {**start, "usage": {"input_tokens": 1, "output_tokens": 0}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def embeddings_answer(body: Any) -> Any:
    vector = [0.5] if body.get("encoding_format") != "base64" else "AAAAPw=="
    count = len(body["input"]) if isinstance(body["input"], list) else 1
    data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(count)]
    return {"object": "list", "model": EMBEDDER, "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def ollama_answer(body: Any) -> Any:
    header = {"model": CHAT, "created_at": "2026-01-01T00:00:00Z"}
    text = json.dumps(ARGUMENTS) if body.get("format") else TEXT
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if body.get("tools"):
        message = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather"}}]}
        message["tool_calls"][0]["function"]["arguments"] = ARGUMENTS
    end = {"done": True, "done_reason": "stop", "total_duration": 1, "prompt_eval_count": 1, "eval_count": 1}
    if body.get("stream", True):
        empty = {"role": "assistant", "content": ""}
        return [{**header, "message": message, "done": False}, {**header, "message": empty, **end}]
    return {**header, "message": message, **end}


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "/v1/chat/completions": chat_answer,
    "/v1/completions": completion_answer,
    "/v1/messages": messages_answer,
    "/v1/embeddings": embeddings_answer,
    "/api/chat": ollama_answer,
    "/api/embed": lambda body: {"model": EMBEDDER, "embeddings": [[0.5] for _ in body["input"]]},
    "/api/show": lambda body: {"capabilities": ["completion"], "model_info": {}, "details": {}},
    "/api/tags": lambda body: {"models": [{"model": CHAT, "name": CHAT, "digest": "1", "size": 1, "details": {}}]},
}


class Server:
    """Keeps the requests of the feature that is used."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                path = self.path.partition("?")[0]
                answer = ANSWERS[path](body or {})
                owner.requests.append((self.command, path, body, answer))
                lines = answer if isinstance(answer, list) else [answer]
                self.send_response(200)
                if not isinstance(answer, list):
                    self.send_header("Content-Type", "application/json")
                    data = json.dumps(answer)
                elif path.startswith("/api/"):
                    self.send_header("Content-Type", "application/x-ndjson")
                    data = "".join(json.dumps(line) + "\n" for line in lines)
                else:
                    self.send_header("Content-Type", "text/event-stream")
                    named = [f"event: {line['type']}\n" if "type" in line else "" for line in lines]
                    parts = (f"{name}data: {json.dumps(line)}\n\n" for name, line in zip(named, lines, strict=True))
                    data = "".join(parts) + ("" if path == "/v1/messages" else "data: [DONE]\n\n")
                self.send_header("Content-Length", str(len(data.encode())))
                self.end_headers()
                self.wfile.write(data.encode())

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


def langchain_features(chat: Any, structured: str) -> dict[str, Callable[[], object]]:
    tools = chat.bind_tools([weather])
    asked = [("system", "Be brief."), ("human", "The weather in Oslo?")]

    def results() -> object:
        from langchain_core.messages import HumanMessage, ToolMessage

        call = tools.invoke(asked)
        assert call.tool_calls[0]["name"] == "weather" and call.tool_calls[0]["args"] == ARGUMENTS
        return tools.invoke([HumanMessage("?"), call, ToolMessage("rain", tool_call_id=call.tool_calls[0]["id"])])

    features: dict[str, Callable[[], object]] = {
        "chat": lambda: check(chat.invoke(asked).content),
        "stream": lambda: check("".join(chunk.text for chunk in chat.stream(asked))),
        "tools": results,
        "tools, streamed": lambda: [*tools.stream(asked)],
    }
    if structured:
        features["JSON schema"] = lambda: chat.with_structured_output(SCHEMA, method=structured).invoke(asked)
    return features


def check(text: object) -> None:
    assert text == TEXT, text


def clients(url: str) -> dict[str, dict[str, Callable[[], object]]]:
    """Return the features of each package."""
    from langchain_anthropic import ChatAnthropic
    from langchain_ollama import ChatOllama, OllamaEmbeddings
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.embeddings.ollama import OllamaEmbedding
    from llama_index.llms.ollama import Ollama
    from llama_index.llms.openai_like import OpenAILike

    key: Any = "none"
    openai: Any = ChatOpenAI(model=CHAT, base_url=f"{url}/v1", api_key=key)
    vectors: Any = OpenAIEmbeddings(model=EMBEDDER, base_url=f"{url}/v1", api_key=key, check_embedding_ctx_length=False)
    anthropic: Any = ChatAnthropic(model=CHAT, base_url=url, api_key=key)
    like = OpenAILike(
        model=CHAT, api_base=f"{url}/v1", api_key="none", is_chat_model=True, is_function_calling_model=True
    )
    plain = OpenAILike(model=CHAT, api_base=f"{url}/v1", api_key="none", is_chat_model=False)
    local = Ollama(model=CHAT, base_url=url, context_window=512)
    tool = FunctionTool.from_defaults(weather)
    turns = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="The weather?")]

    def of_index(model: Any) -> dict[str, Callable[[], object]]:
        return {
            "chat": lambda: check(model.chat(turns).message.content),
            "stream": lambda: check([*model.stream_chat(turns)][-1].message.content),
            "tools": lambda: model.get_tool_calls_from_response(model.chat_with_tools([tool], "Oslo?")),
        }

    return {
        "langchain-openai": langchain_features(openai, "json_schema")
        | {"embeddings": lambda: vectors.embed_documents(["a", "b"])},
        "langchain-anthropic": langchain_features(anthropic, ""),
        "langchain-ollama": langchain_features(ChatOllama(model=CHAT, base_url=url), "json_schema")
        | {"embeddings": lambda: OllamaEmbeddings(model=EMBEDDER, base_url=url).embed_documents(["a", "b"])},
        "llama-index-llms-openai-like": of_index(like) | {"completion": lambda: check(plain.complete("Hi").text)},
        "llama-index-llms-ollama": of_index(local),
        "llama-index-embeddings-ollama": {
            "embeddings": lambda: OllamaEmbedding(EMBEDDER, base_url=url).get_text_embedding_batch(["a", "b"])
        },
        "llm": llm_features(url),
        "llm-ollama": llm_ollama_features(url),
    }


def llm_features(url: str) -> dict[str, Callable[[], object]]:
    import llm

    entry = {"model_id": "local", "model_name": CHAT, "api_base": f"{url}/v1", "supports_schema": True}
    entry |= {"supports_tools": True, "api_key_name": "none"}
    path = Path(os.environ["LLM_USER_PATH"], "extra-openai-models.yaml")
    path.write_text(json.dumps([entry]), encoding="utf-8")  # JSON is YAML
    model: Any = llm.get_model("local")
    model.key = "none"
    return {
        "chat": lambda: check(model.prompt("Hi", stream=False, system="Be brief.").text()),
        "stream": lambda: check("".join(model.prompt("Hi"))),
        "tools": lambda: model.prompt("Oslo?", tools=[weather], stream=False).tool_calls(),
        "JSON schema": lambda: model.prompt("Oslo?", schema=SCHEMA, stream=False).text(),
    }


def llm_ollama_features(url: str) -> dict[str, Callable[[], object]]:
    import llm

    os.environ["OLLAMA_HOST"] = url

    def prompt(**options: Any) -> Any:
        model: Any = llm.get_model(CHAT)
        return model.prompt("Hi", **options)

    return {
        "models": lambda: llm.get_model(CHAT),
        "chat": lambda: check(prompt(stream=False).text()),
        "stream": lambda: check("".join(prompt())),
    }


def main() -> None:
    os.environ["LLM_USER_PATH"] = tempfile.mkdtemp()
    server = Server()
    recorded: list[Recorded] = []
    for client, features in clients(server.url).items():
        print(client, version(client))
        for feature, use in features.items():
            server.requests.clear()
            use()
            for method, path, body, answer in server.requests:
                entry: Recorded = {
                    "client": client, "version": version(client), "feature": feature,
                    "method": method, "path": path, "body": body, "answer": answer,
                }  # fmt: skip
                if all({**each, "feature": feature} != entry for each in recorded):
                    recorded.append(entry)
    lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in recorded)
    Path(sys.argv[1]).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
