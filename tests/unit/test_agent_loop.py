"""Agents of real clients: a scripted model calls a calculator and a search of local files until it answers.

The model writes the format of each family. Every text it writes is checked against the grammar of its request.
"""

from __future__ import annotations

import ast
import asyncio
import json
import operator
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest

from tests.support.harness.gate import slow_rows_but
from tests.support.harness.stand_in import StandIn, StandInStream
from tests.support.models.tokenizers import byte_level
from webpte.checkpoints.families import families
from webpte.llm import ToolFormat
from webpte.llm.constraints import Constraint, GrammarCompiler
from webpte.llm.settings import SamplingParams
from webpte.llm.tool_shapes import ToolCall
from webpte.serve.accounts import Accounts
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.messages import ModelInfo

PRICES = {"pears": (12, 35), "plums": (40, 9), "figs": (25, 60), "limes": (18, 22)}  # in a crate, and cents of one
FRUITS = tuple(PRICES)
EXPRESSIONS = ("17 * 3", "2 ** 10 - 24", "(5 + 6) * 7", "9 / 2")
VALUES = ("51", "1000", "77", "4.5")
TASKS: list[tuple[str, str]] = [
    *((f"calculate {expression}", value) for expression, value in zip(EXPRESSIONS, VALUES, strict=True)),
    *((f"calculate {number} / 0", "0") for number in range(1, 5)),  # the model tries again after an error
    *((f"find {name}", f"{name}: {count} in a crate, {cents} cents each") for name, (count, cents) in PRICES.items()),
    *((f"price {name}", str(count * cents)) for name, (count, cents) in PRICES.items()),
    *(
        (f"price {one} {two}", str(PRICES[one][0] * PRICES[one][1] + PRICES[two][0] * PRICES[two][1]))
        for one, two in zip(FRUITS, FRUITS[1:] + FRUITS[:1], strict=True)
    ),
]

# -- tools -----------------------------------------------------------------------------------------------------------


def schema(argument: str) -> dict[str, Any]:
    return {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}


SCHEMAS = {"calculator": schema("expression"), "search_files": schema("words")}
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def calculator(expression: str) -> str:
    def value(node: Any) -> Any:
        return (
            node.value
            if isinstance(node, ast.Constant)
            else OPERATORS[type(node.op)](*map(value, (node.left, node.right)))
        )

    try:
        result = value(ast.parse(expression, mode="eval").body)
    except ArithmeticError as error:
        return f"error: {error}"
    return f"{result:g}"


def search_files(folder: Path, words: str) -> str:
    texts = (path.read_text("utf-8") for path in sorted(folder.glob("*.txt")))
    return "; ".join(text for text in texts if words in text) or "nothing"


# -- the model -------------------------------------------------------------------------------------------------------


def decide(question: str, results: list[str]) -> list[ToolCall] | str:
    """Return the calls that a question needs after these results, or the answer."""
    verb, _, rest = question.partition(" ")
    names = rest.split()
    if verb == "calculate":
        planned = [ToolCall("calculator", {"expression": rest})]
        if results and results[0].startswith("error"):
            planned.append(ToolCall("calculator", {"expression": " / ".join(reversed(rest.split(" / ")))}))
    else:
        planned = [ToolCall("search_files", {"words": name}) for name in names]
        if verb == "price" and len(results) >= len(names):
            products = (" * ".join(re.findall(r"\d+", text)) for text in results[: len(names)])
            planned += [ToolCall("calculator", {"expression": product}) for product in products]
            if len(names) > 1 and len(results) >= 2 * len(names):
                planned.append(ToolCall("calculator", {"expression": " + ".join(results[len(names) : 2 * len(names)])}))
    return planned[len(results) :] or results[-1]


def written(calls: list[ToolCall], format: ToolFormat) -> str:
    """Return calls as a model of the format writes them."""
    texts = [_written(call, format) for call in calls]
    if format.shape in ("list", "keyed", "python"):
        return f"{format.begin}[{', '.join(texts)}]{format.end}"
    if format.shape == "lines":
        texts = ["\n".join(texts)]
    if format.bare:
        return texts[0]
    return "".join(f"{format.begin}{text}{format.end}" for text in texts)


def _written(call: ToolCall, format: ToolFormat) -> str:
    ((name, value),) = call.arguments.items()
    arguments, padded = json.dumps(call.arguments), f"{format.padding}{value}{format.padding}"
    return {
        **dict.fromkeys(("python", "lines"), f"{call.name}({name}={json.dumps(value)})"),
        "parameters": f"\n<function={call.name}>\n<parameter={name}>{padded}</parameter>\n</function>\n",
        "keyed": json.dumps({call.name: call.arguments}),
        "named": f"{call.name}{format.arguments}{arguments}",
        "unquoted": f'call:{call.name}{{{name}:<|"|>{value}<|"|>}}',
    }.get(format.shape, json.dumps({format.name: call.name, format.arguments: call.arguments}))


class ScriptedModel(StandIn):
    """Reads the question and the results of tools in its prompt, and writes calls or the answer."""

    def __init__(self, folder: Path, format: ToolFormat) -> None:
        tokenizer = byte_level()
        super().__init__(folder, tokenizer, tool_format=format.to_json())
        self._format = format
        (model,) = self.models.values()
        self.models = {"stand-in": replace(model, context=4096)}
        assert model.text is not None
        self._compiler = GrammarCompiler(tokenizer, model.vocabulary, model.text.stop_tokens)
        self.most_calls = 0

    def generate(self, model: str, tokens: tuple[Any, ...], params: SamplingParams, **more: Any) -> StandInStream:
        prompt = self._tokenizer.decode(list(tokens), specials=True)
        (question,) = re.findall(r"user: (.*)", prompt)
        results = re.findall(r"^tool: (.*)", prompt, re.MULTILINE)
        assert params.constraint is not None
        self.says = self._answer(decide(question, results), params)
        matcher = self._compiler.matcher(params.constraint)
        for token in self._tokenizer.encode(self.says):
            matcher.take(token)
        return super().generate(model, tokens, params, **more)

    def _answer(self, decision: list[ToolCall] | str, params: SamplingParams) -> str:
        if isinstance(decision, str):
            return decision
        assert params.constraint is not None
        free = "TEXT" in params.constraint.source  # not if calls are required
        parallel = "block{" in params.constraint.source or self._format.shape in ("list", "keyed", "python", "lines")
        calls = decision if parallel else decision[:1]
        self.most_calls = max(self.most_calls, len(calls))
        return ("Let me see. " if free and not self._format.bare else "") + written(calls, self._format)


class NoCompiler:
    """The model compiles the grammars itself."""

    def __init__(self, model: ModelInfo, accounts: Accounts) -> None: ...

    async def check(self, constraint: Constraint, timeout: float, client: str) -> None: ...

    async def close(self) -> None: ...


# -- clients ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """What a client reads from one response."""

    text: str
    calls: list[tuple[str, str, dict[str, Any]]]  # (id, name, arguments)


Ask = Callable[[list[Any], bool], Awaitable[Turn]]


def openai_agent(application: Any, stream: bool) -> tuple[Ask, Callable[..., list[Any]]]:
    http = openai.DefaultAsyncHttpxClient(transport=httpx2.ASGITransport(application))
    client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)
    tools: Any = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in SCHEMAS.items()]

    async def ask(messages: list[Any], must: bool) -> Turn:
        body: dict[str, Any] = {"model": "stand-in", "messages": messages, "tools": tools}
        body["tool_choice"] = "required" if must else "auto"
        text, calls = "", dict[int, list[str]]()
        if stream:
            async for chunk in await client.chat.completions.create(**body, stream=True):
                delta = chunk.choices[0].delta
                text += delta.content or ""
                for part in delta.tool_calls or ():
                    call = calls.setdefault(part.index, ["", "", ""])
                    for at, piece in enumerate((part.id, part.function.name, part.function.arguments)):
                        call[at] += piece or ""
        else:
            message = (await client.chat.completions.create(**body)).choices[0].message
            text = message.content or ""
            for at, call in enumerate(message.tool_calls or ()):
                calls[at] = [call.id, call.function.name, call.function.arguments]
        return Turn(text, [(id, name, json.loads(arguments)) for id, name, arguments in calls.values()])

    def follow(turn: Turn, results: list[str]) -> list[Any]:
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in turn.calls
        ]
        answers = [
            {"role": "tool", "tool_call_id": id, "content": result}
            for (id, _, _), result in zip(turn.calls, results, strict=True)
        ]
        return [{"role": "assistant", "content": turn.text, "tool_calls": calls}, *answers]

    return ask, follow


def anthropic_agent(application: Any, stream: bool) -> tuple[Ask, Callable[..., list[Any]]]:
    http = anthropic.DefaultAsyncHttpxClient(transport=httpx2.ASGITransport(application))
    client = anthropic.AsyncAnthropic(base_url="http://localhost", api_key="none", http_client=http, max_retries=0)
    tools: Any = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]

    async def ask(messages: list[Any], must: bool) -> Turn:
        body: dict[str, Any] = {"model": "stand-in", "messages": messages, "tools": tools, "max_tokens": 500}
        body["tool_choice"] = {"type": "any" if must else "auto"}
        if stream:
            async with client.messages.stream(**body) as events:
                message = await events.get_final_message()
        else:
            message = await client.messages.create(**body)
        calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
        assert message.stop_reason == ("tool_use" if calls else "end_turn")
        return Turn("".join(block.text for block in message.content if block.type == "text"), calls)

    def follow(turn: Turn, results: list[str]) -> list[Any]:
        calls = [{"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in turn.calls]
        texts = [{"type": "text", "text": turn.text}] if turn.text else []
        answers = [
            {"type": "tool_result", "tool_use_id": id, "content": result}
            for (id, _, _), result in zip(turn.calls, results, strict=True)
        ]
        return [{"role": "assistant", "content": [*texts, *calls]}, {"role": "user", "content": answers}]

    return ask, follow


def ollama_agent(application: Any, stream: bool) -> tuple[Ask, Callable[..., list[Any]]]:
    client = ollama.AsyncClient("http://localhost", transport=httpx.ASGITransport(application))
    tools: Any = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in SCHEMAS.items()]

    async def ask(messages: list[Any], must: bool) -> Turn:
        """Ask. The API has no `tool_choice`."""
        if stream:
            parts = [part.message async for part in await client.chat("stand-in", messages, tools=tools, stream=True)]
        else:
            parts = [(await client.chat("stand-in", messages, tools=tools)).message]
        calls = [call.function for part in parts for call in part.tool_calls or ()]
        text = "".join(part.content or "" for part in parts)
        return Turn(text, [("", call.name, dict(call.arguments)) for call in calls])

    def follow(turn: Turn, results: list[str]) -> list[Any]:
        calls = [{"function": {"name": name, "arguments": arguments}} for _, name, arguments in turn.calls]
        answers = [
            {"role": "tool", "tool_name": name, "content": result}
            for (_, name, _), result in zip(turn.calls, results, strict=True)
        ]
        return [{"role": "assistant", "content": turn.text, "tool_calls": calls}, *answers]

    return ask, follow


# -- tests -----------------------------------------------------------------------------------------------------------

AGENTS = {"openai": openai_agent, "anthropic": anthropic_agent, "ollama": ollama_agent}
FORMATS = {
    format.begin + format.shape: format
    for family in families().values()
    for format in family.tool_formats.values()
    if format is not None
}
CASES = [
    *(("openai", True, format) for format in FORMATS),
    ("openai", False, "<tool_call>object"),
    ("anthropic", True, "<tool_call>object"),
    ("anthropic", False, "<|tools_prefix|>keyed"),
    ("ollama", True, "<tool_call>object"),
    ("ollama", False, "<function_calls>lines"),
    ("anthropic", True, "<|tool_call>unquoted"),
]


@pytest.mark.parametrize(("package", "stream", "format"), slow_rows_but([*CASES[:2], *CASES[-4:]], CASES))
def test_agent_answers_twenty_tasks(tmp_path, monkeypatch, package, stream, format):
    monkeypatch.setattr("webpte.serve.served_models.SchemaCompiler", NoCompiler)
    files = tmp_path / "files"
    files.mkdir()
    for name, (count, cents) in PRICES.items():
        (files / f"{name}.txt").write_text(f"{name}: {count} in a crate, {cents} cents each")
    tools: dict[str, Callable[..., str]] = {
        "calculator": calculator,
        "search_files": lambda words: search_files(files, words),
    }
    model = ScriptedModel(tmp_path, FORMATS[format])

    async def answer(question: str, ask: Ask, follow: Callable[..., list[Any]]) -> str:
        messages: list[Any] = [{"role": "user", "content": question}]
        for number in range(8):
            turn = await ask(messages, number == 0)
            if not turn.calls:
                return turn.text
            assert number == 0 or model._format.bare or turn.text == "Let me see. "
            messages += follow(turn, [tools[name](**arguments) for _, name, arguments in turn.calls])
        raise AssertionError(f"no answer to {question}")

    async def answer_all() -> list[str]:
        application = app(model, Config())
        async with application.router.lifespan_context(application):
            ask, follow = AGENTS[package](application, stream)
            return [await answer(question, ask, follow) for question, _ in TASKS]

    assert len(TASKS) == 20 and asyncio.run(answer_all()) == [value for _, value in TASKS]
    assert model.most_calls == (1 if model._format.bare else 2)
