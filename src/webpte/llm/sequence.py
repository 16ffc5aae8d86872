"""A conversation with a language model: its tokens, and a slot of the cache while it has one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence as Tokens
from typing import Any, Protocol, Unpack

import numpy as np

from ..errors import ContextFullError, FormatError, InputError, UnsupportedError
from ..progress import CancelToken
from ..runtime.checks import check_bool, check_path
from ..runtime.state import read_state, write_state
from ..typing import PathLike
from .context import ContextLimit
from .engine.embeddings import EncoderInputs, Segment, is_token, whole_inputs
from .engine.kv_slots import Slot, common_prefix
from .engine.request import NO_INPUTS, LogitsRequest, PrefillRequest, SequenceState
from .generation import Generation, GenerativeModel, create_generation
from .prompts import Messages, Tools
from .settings import LARGEST, GenerateSettings, integer, shows_settings, tokens_from


class SequenceModel(GenerativeModel, Protocol):
    """What a sequence needs of its language model."""

    capacity: int

    @property
    def context_limit(self) -> ContextLimit: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...


class Sequence:
    """A conversation: it remembers its tokens, and those that are cached are not computed again.

    It may be used from any thread. A new answer takes the sequence from the one before; several answers at once need a
    sequence each, which `LLM.generate` makes by itself. If there are more sequences than slots, the least recently used
    one without an answer in progress loses its slot, and its tokens are computed again when it is used next.
    """

    def __init__(self, llm: SequenceModel, tokens: Tokens[int] = (), encoder_inputs: EncoderInputs = NO_INPUTS) -> None:
        self.llm = llm  #: the model
        self._state = SequenceState(tokens, encoder_inputs)

    @shows_settings
    def generate(
        self,
        prompt: str | Messages | None = None,
        *,
        tokens: Tokens[Segment] | None = None,
        tools: Tools | None = None,
        parse_special: bool = False,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Generation:
        """Generate as `LLM.generate` does. The prompt is the whole conversation, whose cached prefix is reused."""
        return create_generation(
            self.llm,
            settings,
            prompt=prompt,
            tokens=tokens,
            tools=tools,
            parse_special=parse_special,
            cancel=cancel,
            state=self._state,
        )

    @shows_settings
    def complete(
        self,
        text: str,
        *,
        parse_special: bool = False,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Generation:
        """Continue a text as `LLM.complete` does. The text is the whole sequence, whose cached prefix is reused."""
        return create_generation(
            self.llm, settings, text=text, parse_special=parse_special, cancel=cancel, state=self._state
        )

    @property
    def tokens(self) -> tuple[int, ...]:
        return self._state.tokens

    @property
    def position(self) -> int:
        """Return the number of tokens."""
        return len(self._state)

    @property
    def remaining(self) -> int:
        """Return the number of tokens that still fit."""
        return self.llm.capacity - self.position

    def reset(self) -> None:
        """Remove all tokens, and what is cached of them."""
        with self.llm.engine.exclusive():
            self._state.assign(())
            if self._state.slot is not None:
                self._state.slot.clear()

    def rewind(self, count: int) -> None:
        """Remove the last `count` tokens. An image whose rows see each other goes whole, with all of its rows."""
        self.llm.engine.check_process()
        tokens = self._state.tokens
        if integer("rewind", count, 0, LARGEST) > len(tokens):
            raise InputError(argument="rewind", expected=f"at most {len(tokens)}, the sequence's tokens", got=count)
        self._state.assign(tokens[: whole_inputs(tokens, len(tokens) - count)])

    def fork(self) -> Sequence:
        """Return a second sequence with the same tokens. Its cache is copied when it is first used."""
        self.llm.engine.check_process()
        other = Sequence(self.llm, self.tokens, self._state.encoder_inputs)
        other._state.adapter = self._state.adapter
        return other

    def logits(self, tokens: Tokens[int], *, every: bool = False) -> np.ndarray[Any, Any]:
        """Append tokens; return the logits after the last one, (1, V), or after `every` one, (N, V)."""
        check_bool(every, "every")
        checked = tokens_from(tokens, self.llm.vocabulary)
        if not checked:
            raise InputError(argument="logits", expected="at least one token", got="none")
        self.llm.engine.check_process()
        if len(checked) > self.remaining:
            raise ContextFullError(
                argument="tokens",
                expected=f"at most {self.remaining} more, as {self.position} of {self.llm.capacity} are in use",
                got=len(checked),
                hint=f"Reset or rewind the sequence. {self.llm.context_limit.hint}",
            )
        before = self.tokens
        request = LogitsRequest(self._state, (*before, *checked), len(checked) if every else 1)
        try:
            self.llm.engine.compute(request)
        except BaseException:
            self._state.assign(before)
            raise
        assert request.logits is not None
        return request.logits

    def snapshot(self, path: PathLike) -> None:
        """Write the tokens and their cache to a file."""
        check_path(path, "path")
        self.llm.engine.check_process()
        engine, tokens = self.llm.engine, self.tokens
        if self._state.adapter:
            raise UnsupportedError(
                "the sequence has an adapter, which a snapshot does not name",
                code="snapshot_adapter",
                hint="Keep the messages, and generate from them again.",
            )
        if not all(map(is_token, tokens)):
            raise UnsupportedError(
                "the sequence has images, which a snapshot does not hold",
                code="snapshot_images",
                hint="Keep the messages, and generate from them again.",
            )
        pieces = engine.on_device(lambda: engine.runner.read(self._filled_slot(tokens).number, len(tokens)))
        write_state(path, self.llm.fingerprint, pieces, json.dumps(list(tokens)).encode())

    def _filled_slot(self, tokens: Tokens[int]) -> Slot:
        """Return a slot that caches these tokens: the sequence's own, or one that is filled now."""
        slot = self._state.slot
        if slot is not None and common_prefix(slot.tokens, tokens) == len(tokens) and slot.continues_at(len(tokens)):
            return slot
        other = SequenceState(tokens)
        self.llm.engine.compute(PrefillRequest(other, tokens))
        assert other.slot is not None
        return other.slot

    def restore(self, path: PathLike) -> None:
        """Continue from a snapshot of the same model. A snapshot that is refused changes nothing."""
        check_path(path, "path")
        self.llm.engine.check_process()
        runner = self.llm.engine.runner
        pieces, note = read_state(
            path, self.llm.fingerprint, lambda note: runner.sizes(len(self._snapshot_tokens(path, note)))
        )
        tokens = self._snapshot_tokens(path, note)
        self._state.adapter = 0
        self.llm.engine.on_device(lambda: self._write_cache(tokens, pieces))
        self._state.assign(tokens)

    def _write_cache(self, tokens: tuple[int, ...], pieces: Tokens[memoryview]) -> None:
        engine = self.llm.engine
        engine.compute(PrefillRequest(self._state, ()))  # which allocates a slot
        slot = self._state.slot
        assert slot is not None
        slot.clear()  # until everything is written, none of it is valid
        if tokens:
            engine.runner.write(slot.number, len(tokens), pieces)
        slot.assign(tokens)

    def _snapshot_tokens(self, path: PathLike, note: bytes) -> tuple[int, ...]:
        """Return the tokens in the note of a snapshot."""
        try:
            listed = json.loads(note)
            if not isinstance(listed, list):
                raise InputError(f"its note is {type(listed).__name__}")
            tokens = tokens_from(listed, self.llm.vocabulary)
        except (ValueError, RecursionError, InputError) as error:
            raise FormatError(
                f"{os.fspath(path)} is not a snapshot of a language model: {error}", code="not_a_snapshot"
            ) from error
        if len(tokens) > self.llm.capacity:
            raise FormatError(f"{os.fspath(path)} holds {len(tokens)} tokens; the context has {self.llm.capacity}")
        return tokens

    def close(self) -> None:
        """Free the slot."""
        if not self.llm.engine.process.is_current:
            return
        self._state.disown()
        with self.llm.engine.exclusive():
            if self._state.slot is not None:
                self._state.slot.release()

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
