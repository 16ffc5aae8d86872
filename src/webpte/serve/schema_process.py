"""Untrusted constraints, compiled in helper processes that have a memory limit and can be killed.

A schema of a kilobyte can take gigabytes and minutes to compile, in a library that cannot be interrupted. So the server
compiles every constraint in a helper first. The worker gets only those that compiled within the limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from ..errors import Error, error_of
from ..llm.constraints import Constraint, GrammarCompiler
from ..llm.tokenizer import Tokenizer
from .accounts import Accounts, Pool
from .errors import ApiError, unavailable
from .messages import ModelInfo
from .processes import end_after, ignore_stop_signals, limit_memory, spawn

COMMAND = (sys.executable, "-m", "webpte.serve.schema_process")
MAX_KNOWN = 1024  # constraints that compiled, which are not compiled again
NUM_PROCESSES = 2
START_SECONDS = 60.0
WAIT_FACTOR = 10  # a constraint may wait for its turn this many times as long as it may take to compile
ORPHAN_SECONDS = 1.0  # after the timeout, when a helper whose server has died ends by itself
MEMORY_BYTES = 256 << 20  # that a constraint may take


class SchemaCompiler:
    """Checks the constraints for one model. Each client has one constraint compiled at a time, so that one client
    cannot keep all helper processes busy. The processes start with the first constraint."""

    def __init__(self, model: ModelInfo, accounts: Accounts, memory_bytes: int = MEMORY_BYTES) -> None:
        self._model = model
        self._memory_bytes = memory_bytes
        self._known: OrderedDict[Constraint, None] = OrderedDict()
        self._idle: asyncio.Queue[asyncio.Task[_HelperProcess]] = asyncio.Queue()
        self._helpers: set[asyncio.Task[_HelperProcess]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._turns = Pool(accounts, "compiling_seconds", NUM_PROCESSES)

    async def check(self, constraint: Constraint, timeout: float, client: str = "") -> None:
        """Raise ConstraintError for a constraint that cannot be followed, ApiError 422 for one beyond the limits."""
        if constraint in self._known:
            self._known.move_to_end(constraint)
            return
        while len(self._helpers) < NUM_PROCESSES:
            self._start_helper()
        async with self._helper(client, timeout * WAIT_FACTOR) as starting:
            if constraint not in self._known:  # another request may have compiled it meanwhile
                await (await _started(starting)).check(constraint, timeout)
                self._known[constraint] = None
                if len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)

    def _start_helper(self) -> None:
        starting = asyncio.ensure_future(_HelperProcess.spawn(self._model, self._memory_bytes))
        self._helpers.add(starting)
        self._idle.put_nowait(starting)

    @contextlib.asynccontextmanager
    async def _helper(self, client: str, timeout: float) -> AsyncIterator[asyncio.Task[_HelperProcess]]:
        """Wait for a helper. It is replaced if the block fails for another reason than the constraint itself: after a
        timeout, or when the client has disconnected, it may be busy for minutes."""
        async with self._turns.slot(client, timeout):
            helper = self._idle.get_nowait()  # there are as many as slots
            try:
                yield helper
            except Error:
                self._idle.put_nowait(helper)
                raise
            except BaseException:
                self._end_helper(helper)
                self._start_helper()
                raise
            self._idle.put_nowait(helper)

    def _end_helper(self, helper: asyncio.Task[_HelperProcess]) -> None:
        self._helpers.discard(helper)
        ending = asyncio.ensure_future(_end(helper))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End the helper processes."""
        for helper in list(self._helpers):
            self._end_helper(helper)
        await asyncio.gather(*self._ending)


async def _started(helper: asyncio.Task[_HelperProcess]) -> _HelperProcess:
    """Return a helper when it has started. Raise ApiError 503 if the system cannot start it now."""
    try:
        return await helper
    except OSError as error:  # no file or memory for it, it exited, or it was too slow: TimeoutError is an OSError
        raise unavailable(error) from None


async def _end(helper: asyncio.Task[_HelperProcess]) -> None:
    """Kill a helper, also one that is still starting, and wait for its end."""
    helper.cancel()
    with contextlib.suppress(asyncio.CancelledError, ConnectionError, OSError, TimeoutError):
        await (await helper).kill()


class _HelperProcess:
    """A process that compiles one constraint at a time."""

    def __init__(self, child: asyncio.subprocess.Process, memory_bytes: int) -> None:
        self._child = child
        self._memory_bytes = memory_bytes

    @classmethod
    async def spawn(cls, model: ModelInfo, memory_bytes: int) -> _HelperProcess:
        helper = cls(await spawn(COMMAND), memory_bytes)
        try:
            async with asyncio.timeout(START_SECONDS):
                await helper._ask([asdict(model), memory_bytes])
        except BaseException:
            await helper.kill()
            raise
        return helper

    async def check(self, constraint: Constraint, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                failure = await self._ask([constraint.kind, constraint.source, timeout])
        except TimeoutError:
            raise ApiError(
                422, f"the {constraint.kind} did not compile within {timeout:g} s (schema_timeout). Simplify it."
            ) from None
        except ConnectionError:
            raise ApiError(
                422, f"the {constraint.kind} takes more than {self._memory_bytes >> 20} MB to compile. Simplify it."
            ) from None
        if failure is not None:
            raise error_of(*failure)

    async def _ask(self, message: Any) -> Any:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps(message).encode() + b"\n")
        line = await self._child.stdout.readline()
        if not line:
            raise ConnectionError("the helper process has exited")
        return json.loads(line)

    async def kill(self) -> None:
        """Kill the process and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        await self._child.wait()


def main() -> int:
    """Run the helper: read a model, then constraints; answer each with null, or an error's class, text and reason.
    Return when the server has closed the pipes or has died."""
    ignore_stop_signals()
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print does not go to the pipe
    first = reader.readline()
    with contextlib.suppress(BrokenPipeError):
        if first:
            _answer_all(reader, writer, *TypeAdapter(tuple[ModelInfo, int]).validate_json(first))
    return 0


def _answer_all(reader: BinaryIO, writer: BinaryIO, model: ModelInfo, memory_bytes: int) -> None:
    assert model.text is not None  # of a language model
    compiler = GrammarCompiler(Tokenizer.load(model.text.tokenizer), model.vocabulary, model.text.stop_tokens)
    limit_memory(memory_bytes)
    _answer(writer, None)
    for line in reader:
        kind, source, timeout = json.loads(line)
        end_after(timeout + ORPHAN_SECONDS)
        try:
            compiler.check(Constraint(kind, source))
            _answer(writer, None)
        except Error as error:
            _answer(writer, [type(error).__name__, str(error), error.reason])
        end_after(0)


def _answer(writer: BinaryIO, value: Any) -> None:
    writer.write(json.dumps(value).encode() + b"\n")
    writer.flush()


if __name__ == "__main__":
    sys.exit(main())
