"""Constraints in helper processes: limits of time and memory, clients in turns, and what is compiled once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.tokenizers import byte_level
from webpte.errors import ConstraintError
from webpte.llm.constraints import Constraint
from webpte.serve import schema_process
from webpte.serve.accounts import Accounts
from webpte.serve.errors import ApiError
from webpte.serve.messages import ModelInfo, TextFiles
from webpte.serve.schema_process import MEMORY_BYTES, NUM_PROCESSES, SchemaCompiler

# An intersection of 20 expressions has 2 ** 20 states: minutes, and gigabytes.
BOMB = json.dumps({"allOf": [{"type": "string", "pattern": f".*{letter}.*"} for letter in "abcdefghijklmnopqrst"]})
LONG = 300.0  # seconds that nothing here takes


def schema(name: str) -> Constraint:
    return Constraint("json_schema", json.dumps({"type": "object", "properties": {name: {"type": "boolean"}}}))


def bomb(number: int = 0) -> Constraint:
    return Constraint("json_schema", BOMB + " " * number)


def tokenizer_model(folder: Path) -> ModelInfo:
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    text = TextFiles(str(folder / "tokenizer.json"), None, None, (), None, (1,))
    return ModelInfo("m", "", "language", 64, tokenizer.backend_tokenizer.get_vocab_size(), 0, 4, "f", 1, text)


@pytest.fixture
def compiling(tmp_path):
    """Runs `test(compiler)`."""

    def run(test: Callable[[SchemaCompiler], Awaitable[Any]], **options: int) -> Any:
        model = tokenizer_model(tmp_path)

        async def whole() -> Any:
            compiler = SchemaCompiler(model, Accounts(1 << 20), **options)
            try:
                async with asyncio.timeout(LONG):
                    return await test(compiler)
            finally:
                await compiler.close()

        return asyncio.run(whole())

    return run


async def pids(compiler: SchemaCompiler) -> set[int]:
    return {(await helper)._child.pid for helper in compiler._helpers}


def test_constraint_that_cannot_be_followed_is_refused_by_its_error(compiling):
    async def test(compiler: SchemaCompiler) -> None:
        with pytest.raises(ConstraintError):
            await compiler.check(Constraint("regex", "["), LONG)
        await compiler.check(Constraint("regex", "[a]"), LONG)

    compiling(test)


def test_slow_constraint_is_killed_and_its_helper_replaced(compiling):
    async def test(compiler: SchemaCompiler) -> None:
        await compiler.check(schema("first"), LONG)
        before = await pids(compiler)
        with pytest.raises(ApiError) as caught:
            await compiler.check(bomb(), 0.2)
        assert caught.value.status == 422 and "0.2 s" in str(caught.value)
        after = await pids(compiler)
        assert len(after) == NUM_PROCESSES and len(after & before) == NUM_PROCESSES - 1
        await compiler.check(schema("last"), LONG)

    compiling(test)


def test_client_with_many_slow_constraints_does_not_delay_another(compiling):
    async def test(compiler: SchemaCompiler) -> None:
        slow = [asyncio.ensure_future(compiler.check(bomb(number), LONG, "attacker")) for number in range(5)]
        for number in range(5):
            await compiler.check(schema(f"other{number}"), LONG, "other")
        assert not any(each.done() for each in slow)
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        await compiler.check(schema("last"), LONG, "attacker")
        assert not len(compiler._turns)

    compiling(test, memory_bytes=64 << 30)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the limit needs to know the memory that is in use")
def test_constraint_that_takes_too_much_memory_is_refused(compiling):
    async def test(compiler: SchemaCompiler) -> None:
        large = Constraint("json_schema", json.dumps({"enum": [f"{number:060}" for number in range(3000)]}))
        for _ in range(2):
            with pytest.raises(ApiError) as caught:
                await compiler.check(large, LONG)
            assert caught.value.status == 422 and "4 MB" in str(caught.value)

    compiling(test, memory_bytes=4 << 20)


def test_constraint_is_compiled_once(compiling, monkeypatch):
    monkeypatch.setattr(schema_process, "MAX_KNOWN", 2)

    async def test(compiler: SchemaCompiler) -> None:
        await asyncio.gather(*(compiler.check(schema("a"), LONG) for _ in range(5)))
        await compiler.check(schema("b"), LONG)
        await compiler.check(schema("a"), LONG)  # which is then the latest used
        await compiler.check(schema("c"), LONG)
        assert list(compiler._known) == [schema("a"), schema("c")]

    compiling(test)


def test_client_that_disconnects_ends_its_helper(compiling):
    async def test(compiler: SchemaCompiler) -> None:
        await compiler.check(schema("first"), LONG)
        before = await pids(compiler)
        slow = asyncio.ensure_future(compiler.check(bomb(), LONG))
        await asyncio.sleep(0.2)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await compiler.check(schema("second"), LONG)
        assert len(await pids(compiler) & before) == NUM_PROCESSES - 1

    compiling(test)


def test_helper_that_cannot_be_started_is_unavailable_and_started_again(compiling, monkeypatch):
    """The server may have no file descriptor left for its pipes."""

    async def test(compiler: SchemaCompiler) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(schema_process, "COMMAND", ("/no/such/program",))
            for _ in range(3):
                with pytest.raises(ApiError) as caught:
                    await compiler.check(schema("a"), LONG)
                assert caught.value.status == 503 and caught.value.headers["Retry-After"] == "5"
        for _ in range(NUM_PROCESSES):  # those that could not be started are discarded one by one
            with contextlib.suppress(ApiError):
                await compiler.check(schema("a"), LONG)
        await compiler.check(schema("b"), LONG)

    compiling(test)


def test_wait_for_other_constraints_is_bounded(compiling, monkeypatch):
    monkeypatch.setattr(schema_process, "WAIT_FACTOR", 0.001)

    async def test(compiler: SchemaCompiler) -> None:
        slow = [asyncio.ensure_future(compiler.check(bomb(number), LONG, f"{number}")) for number in range(2)]
        await asyncio.sleep(0.2)
        with pytest.raises(ApiError) as caught:
            await compiler.check(schema("late"), 100.0, "late")
        assert caught.value.status == 503
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    compiling(test)


@pytest.mark.skipif(os.name != "posix", reason="other systems have no SIGINT for a process")
def test_helper_ignores_stop_signals_and_ends_with_its_input(compiling, capfd):
    """The service manager or the terminal of the server may send them to all processes."""

    async def test(compiler: SchemaCompiler) -> int:
        await compiler.check(schema("first"), LONG)
        (helper, _) = [await helper for helper in compiler._helpers]
        assert os.getpgid(helper._child.pid) != os.getpgid(0)
        for number in (signal.SIGINT, signal.SIGTERM):
            helper._child.send_signal(number)
        assert await helper._ask(["regex", "[a]", LONG]) is None
        assert helper._child.stdin is not None
        helper._child.stdin.close()
        return await helper._child.wait()

    assert compiling(test) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("asked", [False, True], ids=["before its model is sent", "while it loads"])
def test_helper_whose_server_dies_while_it_starts_ends_without_a_traceback(tmp_path, asked):
    sent = json.dumps([asdict(tokenizer_model(tmp_path)), MEMORY_BYTES]).encode() + b"\n" if asked else b""
    reader, writer = os.pipe()
    os.close(reader)  # no server reads an answer
    ended = subprocess.run(schema_process.COMMAND, input=sent, stdout=writer, stderr=subprocess.PIPE, timeout=LONG)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot end a process by a timer")
def test_helper_whose_server_has_died_ends_by_itself(compiling):
    """Also in the middle of a constraint that takes minutes."""

    async def test(compiler: SchemaCompiler) -> None:
        await compiler.check(schema("first"), LONG)
        helper = await next(iter(compiler._helpers))
        asking = asyncio.ensure_future(helper._ask(["json_schema", BOMB, 0.1]))
        await helper._child.wait()
        with pytest.raises(ConnectionError):
            await asking

    compiling(test)
