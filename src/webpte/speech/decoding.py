"""Decode a window of audio: the program's methods, the rules for tokens, and spans between timestamps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import FormatError
from ..graph import Graph
from ..runtime import Program
from ..task_file import TaskFile
from ..typing import Array

STATE_POOL = -1  # no pool of a file has this number, so nothing else shares these buffers
MASKED = np.float32(-np.inf)
FRAMES_PER_TIMESTAMP = 2  # of the spectrogram, for each step of 0.02 s


class SpeechMethods:
    """The methods `encode` and `decode` of a speech program.

    The decoder attends to keys and values that `encode` returns and `decode` takes. In the file they are outputs and
    inputs. Here they become state that the two methods share, so that they stay on the device until the next `encode`.
    If the encoder takes inputs of any length, `decode` also takes the number of rows that it returned.

    In programs of optimum-executorch, the methods are `encoder` and `text_decoder`, and the decoder takes the hidden
    states, before the position.
    """

    def __init__(self, program: Program, convolutions: Sequence[tuple[int, int]] = ()) -> None:
        """Open the methods. `convolutions` are the kernels and strides of an encoder of any length."""
        names = ("encoder", "text_decoder") if "text_decoder" in program.method_names else ("encode", "decode")
        if missing := {*names} - set(program.method_names):
            raise FormatError(
                argument=program.path,
                expected="a speech program with the methods encode and decode",
                got=f"no method {', '.join(sorted(missing))}",
                code="not_speech",
            )
        self._convolutions = convolutions
        self._rows: list[Array] = []  # their number, if the encoder takes inputs of any length
        outputs, inputs = (
            (slice(0, None), slice(1, 2))
            if names[0] == "encoder"
            else (
                slice(1, None),  # hidden states are not read
                slice(3 if convolutions else 2, None),
            )
        )
        self._encode = program.method(names[0], _outputs_to_state(outputs))
        self._decode = program.method(names[1], _inputs_to_state(inputs))
        self.bands, self.frames = self._bound(self._encode.inputs[0].bound, 3)[1:]
        self.max_call_tokens = self._bound(self._decode.inputs[0].bound, 2)[1]
        self.vocabulary = self._bound(self._decode.outputs[0].bound, 2 if names[0] == "encode" else 3)[-1]
        self.exclusive = self._decode.exclusive  # the methods share state, and so a lock

    @property
    def min_frames(self) -> int:
        """Return the smallest number of frames that give a row."""
        frames = 1
        for kernel, stride in reversed(self._convolutions):
            frames = (frames - 1) * stride + kernel
        return frames if self._convolutions else self.frames

    def encode(self, signal: Array) -> None:
        """Encode a window of a spectrogram or of samples, (bands, frames), into the state."""
        self._encode.run([signal[None]], outputs=[])
        if self._convolutions:
            rows = signal.shape[1]
            for kernel, stride in self._convolutions:
                rows = (rows - kernel) // stride + 1
            self._rows = [np.array([rows], np.int64)]

    def decode(self, tokens: Sequence[int], position: int) -> Array:
        """Return the logits after the last of `tokens`. The cache holds those before `position`, that of the first."""
        logits: Any = None
        for start in range(0, len(tokens), self.max_call_tokens):
            piece = np.array([tokens[start : start + self.max_call_tokens]], np.int64)  # (1, T)
            logits = self._decode(piece, np.array([position + start], np.int64), *self._rows)  # (1, V) or (1, T, V)
        last: Array = logits.reshape(-1, self.vocabulary)[-1]
        return last

    def _bound(self, bound: Any, rank: int) -> tuple[int, ...]:
        if not isinstance(bound, tuple) or len(bound) != rank:
            raise FormatError(
                f"not a speech program: encode or decode has an argument of shape {bound}", code="not_speech"
            )
        return bound


def _outputs_to_state(which: slice) -> Callable[[Graph], Graph]:
    """Return the rewrite of the encoder: these outputs become state."""

    def rewrite(graph: Graph) -> Graph:
        state = graph.outputs[which]
        return replace(_with_state(graph, state), outputs=tuple(each for each in graph.outputs if each not in state))

    return rewrite


def _inputs_to_state(which: slice) -> Callable[[Graph], Graph]:
    """Return the rewrite of the decoder: these inputs become state."""

    def rewrite(graph: Graph) -> Graph:
        state = graph.inputs[which]
        return replace(_with_state(graph, state), inputs=tuple(each for each in graph.inputs if each not in state))

    return rewrite


def _with_state(graph: Graph, state: Sequence[int]) -> Graph:
    values = list(graph.values)
    for number, value_id in enumerate(state):
        values[value_id] = replace(graph.tensor(value_id), mutable=True, shared=(STATE_POOL, number))
    return replace(graph, values=tuple(values))


# -- rules -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenRules:
    """The special tokens of a model, and Whisper's rules for the next token."""

    start: int  # of a transcript
    end: int
    no_timestamps: int | None  # part of a prompt without timestamps; the timestamp tokens follow it
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]  # as the first token
    max_first_timestamp: int | None  # in steps of 0.02 s

    @classmethod
    def read(cls, file: TaskFile, vocabulary: int) -> TokenRules:
        """Return the rules in a task file."""
        last = vocabulary - 1
        return cls(
            start=file.integer("start_token", 0, last),
            end=file.integer("end_token", 0, last),
            no_timestamps=file.integer("no_timestamps_token", 1, last) if file.has("no_timestamps_token") else None,
            suppressed=file.integers("suppress_tokens", None, 0, last),
            suppressed_first=file.integers("begin_suppress_tokens", None, 0, last),
            max_first_timestamp=(
                file.integer("max_initial_timestamp_index", 0) if file.has("max_initial_timestamp_index") else None
            ),
        )

    @property
    def first_timestamp(self) -> int:
        """Return the token of 0.00 seconds. In a model without timestamps it is above all tokens."""
        return self.no_timestamps + 1 if self.no_timestamps is not None else 1 << 31

    @property
    def no_speech(self) -> int | None:
        """Return the token for a window without speech."""
        return self.no_timestamps - 1 if self.no_timestamps is not None else None

    def mask(self, logits: Array, tokens: Sequence[int], timestamps: bool) -> Array:
        """Return the logits after `tokens`, with minus infinity for tokens that may not follow."""
        scores = logits.astype(np.float32)
        if not tokens:
            scores[list(self.suppressed_first)] = MASKED
        scores[list(self.suppressed)] = MASKED
        if timestamps:
            self._mask_timestamps(scores, tokens)
        return scores

    def _mask_timestamps(self, scores: Array, tokens: Sequence[int]) -> None:
        """Apply the order of timestamps: pairs of an end and the next start, which never decrease."""
        first = self.first_timestamp
        scores[self.no_timestamps] = MASKED
        after_one = bool(tokens) and tokens[-1] >= first
        after_two = after_one and (len(tokens) < 2 or tokens[-2] >= first)
        if after_two:  # a text must follow; the very first timestamp has no partner
            scores[first:] = MASKED
        elif after_one:  # its partner or the end must follow
            scores[: self.end] = MASKED
        if earlier := [token for token in tokens if token >= first]:
            partner = after_one and not after_two
            scores[first : earlier[-1] + (0 if partner else 1)] = MASKED  # a text ends after its start
        if not tokens:
            scores[:first] = MASKED
            if self.max_first_timestamp is not None:
                scores[first + self.max_first_timestamp + 1 :] = MASKED
        # The sum of all timestamps may be more probable than the most probable text token.
        if _log_sum(scores[first:]) > scores[:first].max():
            scores[:first] = MASKED


def _log_sum(scores: Array) -> float:
    """Return log(sum(exp(scores))), minus infinity for none."""
    highest = scores.max(initial=MASKED)
    return float(highest + np.log(np.exp(scores - highest).sum())) if np.isfinite(highest) else float(highest)


def log_probability(logits: Array, token: int) -> float:
    """Return the log-probability of a token."""
    return float(logits[token]) - _log_sum(logits)


# -- spans -------------------------------------------------------------------------------------------------------------


class TokenSpan(NamedTuple):
    """Tokens between two timestamps, which are in steps of 0.02 s from the start of the window."""

    start: int
    end: int
    tokens: tuple[int, ...]


def split_spans(tokens: Sequence[int], first_timestamp: int, frames: int) -> tuple[list[TokenSpan], int]:
    """Divide the tokens of a window. Return the spans, and the number of frames to the start of the next window.

    This is the sequential algorithm of Whisper's authors. Two timestamps in a row end a span. Tokens after the last
    such pair were truncated by the end of the window, so the next window starts at the pair. A single timestamp at the
    end means that no speech follows.
    """
    marks = [token >= first_timestamp for token in tokens]
    cuts = [index for index in range(1, len(tokens)) if marks[index - 1] and marks[index]]
    if not cuts:
        stamps = [token - first_timestamp for token, mark in zip(tokens, marks, strict=True) if mark]
        return [
            TokenSpan(0, stamps[-1] if stamps and stamps[-1] else frames // FRAMES_PER_TIMESTAMP, tuple(tokens))
        ], frames
    complete = marks[-2:] == [False, True]
    bounds = [0, *cuts, len(tokens)] if complete else [0, *cuts]
    spans = [
        TokenSpan(tokens[start] - first_timestamp, tokens[stop - 1] - first_timestamp, tuple(tokens[start:stop]))
        for start, stop in itertools.pairwise(bounds)
    ]
    if complete:
        return spans, frames
    # As in transformers, the last span keeps the timestamp that starts the truncated text.
    spans[-1] = spans[-1]._replace(tokens=(*spans[-1].tokens, tokens[cuts[-1]]))
    return spans, (tokens[cuts[-1] - 1] - first_timestamp) * FRAMES_PER_TIMESTAMP
