"""One conversation: the tokens that are known, and a slot of the cache while there is one to have."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Sequence as Tokens
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..errors import FormatError, InputError
from ..progress import CancelToken
from ..runtime.checks import flag, path_of
from ..runtime.state import read_state, write_state
from .chat import Messages, Tools
from .errors import ContextFullError
from .job import Goal, Job, Limits
from .settings import LARGEST, GenerateSettings, Settings, integer, shows_settings, tokens_from
from .slot_table import Slot, common_prefix

if TYPE_CHECKING:
    from .generation import Generation
    from .model import LLM

PathLike = str | os.PathLike[str]


class Sequence:
    """A conversation with a model: it remembers its tokens, and what of them is cached is not computed again.

    It may be used from any thread. An answer that is begun takes it from the one before; several answers at once need
    a sequence each, which `LLM.generate` makes by itself. When the model has more of them than slots, one that is not
    being read gives its slot up, and its tokens are computed again when it is used next.
    """

    slot: Slot | None = None  # the engine's to set

    def __init__(self, llm: LLM, tokens: Tokens[int] = (), *, kept: bool = True) -> None:
        self.llm = llm
        self.kept = kept  # its slot, from one answer to the next
        self._tokens = list(tokens)  # those that were seen, up to the last but one that was chosen
        self._holder: weakref.ref[Job] | None = None  # whose answer may go on
        self._lock = threading.Lock()  # short: for the two of them

    @shows_settings
    def generate(
        self,
        prompt: str | Messages | None = None,
        *,
        tokens: Tokens[int] | None = None,
        tools: Tools | None = None,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Generation:
        """As `LLM.generate`, in this sequence: the prompt is all of it, and what the two begin with alike is kept."""
        return self.llm.answer_in(self, prompt, tokens, cancel, settings, tools)

    @property
    def tokens(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(self._tokens)

    @property
    def position(self) -> int:
        """Tokens of the conversation, up to the last one that was seen."""
        return len(self._tokens)

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.llm.capacity - self.position

    def reset(self) -> None:
        """Forget everything said, and what is cached of it."""
        self.llm.check_process()
        with self.llm.engine.turn, self._lock:
            self._holder = None
            self._tokens.clear()
            if self.slot is not None:
                self.slot.clear()

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens."""
        self.llm.check_process()
        with self._lock:
            if integer("rewind", count, 0, LARGEST) > len(self._tokens):
                raise InputError(f"cannot rewind {count} tokens; the sequence has {len(self._tokens)}")
            self._holder = None
            del self._tokens[len(self._tokens) - count :]

    def fork(self) -> Sequence:
        """A second sequence that starts where this one is. What is cached is copied when it is first used."""
        self.llm.check_process()
        return Sequence(self.llm, self.tokens)

    def logits(self, tokens: Tokens[int], *, every: bool = False) -> np.ndarray[Any, Any]:
        """Append tokens and return the logits behind the last one, (1, V), or behind `every` one, (N, V)."""
        flag(every, "every")
        checked = tokens_from(tokens, self.llm.vocabulary)
        if not checked:
            raise InputError("logits need at least one token")
        self.llm.check_process()
        if len(checked) > self.room:
            raise ContextFullError(
                f"{len(checked)} more tokens do not fit: {self.position} of {self.llm.capacity} are used. "
                "Reset, rewind, or export with a longer context."
            )
        before = self.tokens
        job = self._job((*before, *checked), "logits", wanted=len(checked) if every else 1)
        try:
            self.llm.engine.finish(job)
        except BaseException:
            with self._lock:
                self._tokens[:] = before
            raise
        assert job.result is not None
        return job.result

    def snapshot(self, path: PathLike) -> None:
        """Write the tokens and what is cached of them to a file."""
        path_of(path, "path")
        self.llm.check_process()
        engine, tokens = self.llm.engine, self.tokens
        pieces = engine.on_device(lambda: engine.runner.read(self._filled(tokens).number, len(tokens)))
        write_state(path, self.llm.fingerprint, pieces, json.dumps(list(tokens)).encode())

    def _filled(self, tokens: Tokens[int]) -> Slot:
        """A slot with these tokens: this sequence's, unless it had to give it up; then another's, for the moment."""
        slot = self.slot
        if slot is not None and slot.usable(common_prefix(slot.tokens, tokens)) == len(tokens):
            return slot
        other = Sequence(self.llm, tokens)
        self.llm.engine.finish(other._job(tokens, "cache"))
        assert other.slot is not None
        return other.slot

    def restore(self, path: PathLike) -> None:
        """Continue from a snapshot of the same model. One that is refused leaves everything as it is."""
        path_of(path, "path")
        engine = self.llm.engine
        tokens: tuple[int, ...] = ()

        def sizes(note: bytes) -> list[int]:
            nonlocal tokens
            tokens = self._noted_tokens(path, note)
            return engine.runner.sizes(len(tokens))

        def write() -> None:
            engine.finish(self._job((), "cache"))
            assert self.slot is not None
            self.slot.clear()  # until everything is written, nothing of it is certain
            if tokens:
                engine.runner.write(self.slot.number, len(tokens), pieces)
            self.slot.take(tokens)

        self.llm.check_process()
        pieces, _ = read_state(path, self.llm.fingerprint, sizes)
        engine.on_device(write)
        with self._lock:
            self._tokens[:] = tokens

    def _noted_tokens(self, path: PathLike, note: bytes) -> tuple[int, ...]:
        """The tokens that the note of a snapshot lists."""
        try:
            listed = json.loads(note)
            if not isinstance(listed, list):
                raise InputError(f"its note is {type(listed).__name__}")
            tokens = tokens_from(listed, self.llm.vocabulary)
        except (ValueError, RecursionError, InputError) as error:
            raise FormatError(
                f"{os.fspath(path)} is no snapshot of a language model: {error}", code="not_a_snapshot"
            ) from error
        if len(tokens) > self.llm.capacity:
            raise FormatError(f"{os.fspath(path)} holds {len(tokens)} tokens; the context has {self.llm.capacity}")
        return tokens

    def close(self) -> None:
        """Leave the slot to others."""
        if not self.llm.in_its_process:
            return
        with self._lock:
            self._holder = None
        with self.llm.engine.turn:
            if self.slot is not None:
                self.slot.vacate()

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _job(self, tokens: Tokens[int], goal: Goal, wanted: int = 1) -> Job:
        return Job(self, tokens, Settings(), Limits((), 1, self.llm.capacity), goal=goal, wanted=wanted)

    # -- for answers -----------------------------------------------------------------------------------------------

    def hold(self, job: Job) -> None:
        """From here on only this job may go on. What its prompt does not begin with is forgotten."""
        with self._lock:
            self._holder = weakref.ref(job)
            del self._tokens[common_prefix(self._tokens, job.reusable) :]

    def held_by(self, job: Job) -> bool:
        return self._holder is not None and self._holder() is job

    def note_cached(self, job: Job, count: int) -> None:
        """So much of the job's prompt is computed."""
        with self._lock:
            if self.held_by(job) and len(self._tokens) < len(job.prompt):
                self._tokens += job.prompt[len(self._tokens) : count]

    def note_seen(self, job: Job, token: int) -> None:
        """The reader of the job has gone beyond this token."""
        with self._lock:
            if self.held_by(job):
                self._tokens.append(token)
