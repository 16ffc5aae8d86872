"""An answer for asyncio: the work is done in a thread beside the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from .generation import Generation, Piece


class Stream:
    """Iterate for pieces with `async for`. A task that is cancelled gives the rest of the answer up."""

    def __init__(self, answer: Generation, worker: Executor) -> None:
        self.answer = answer
        self._worker = worker  # one thread for all streams of a model: whoever waits has tokens computed for all

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Piece:
        self.answer.start()  # at once: the worker may be busy with the others
        try:
            piece = await asyncio.get_running_loop().run_in_executor(self._worker, next, self.answer, None)
        except asyncio.CancelledError:
            self.answer.give_up()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Give up the rest of the answer."""
        self.answer.give_up()
