"""The two methods of a Whisper program: `encode` hears a window, `decode` says what comes next.

Both work on the keys and values that the decoder attends to, which `encode` returns and `decode` takes. In the file
they are outputs and inputs as any others; here they become state that the two share, so that they stay on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import FormatError
from ..graph import Graph
from ..runtime import Program

Array = np.ndarray[Any, Any]
ELSEWHERE = -1  # no pool of a file has this number: these buffers are shared by nobody else


class Listener:
    """A window, once heard, is there until the next one is."""

    def __init__(self, program: Program) -> None:
        if missing := {"encode", "decode"} - set(program.method_names):
            raise FormatError(
                f"{program.file.path} has no method {', '.join(sorted(missing))}: it is no Whisper program"
            )
        self._encode = program.method("encode", _keep_outputs)
        self._decode = program.method("decode", _keep_inputs)
        self.bands, self.frames = self._bound(self._encode.inputs[0].bound, 3)[1:]
        self.most_tokens = self._bound(self._decode.inputs[0].bound, 2)[1]
        self.vocabulary = self._bound(self._decode.outputs[0].bound, 2)[1]
        self.exclusive = self._decode.exclusive  # the methods share state, and so a lock

    def hear(self, mel: Array) -> None:
        """A window of a spectrogram (bands, frames)."""
        self._encode.run([mel[None]], outputs=[])

    def logits(self, tokens: Sequence[int], position: int) -> Array:
        """Behind the last of these tokens, of which the first stands at the position; those before it were given."""
        found: Any = None
        for start in range(0, len(tokens), self.most_tokens):
            piece = np.array([tokens[start : start + self.most_tokens]], np.int64)  # (1, T)
            found = self._decode(piece, np.array([position + start], np.int64))  # (1, V)
        logits: Array = found[0]
        return logits

    def _bound(self, bound: Any, rank: int) -> tuple[int, ...]:
        if not isinstance(bound, tuple) or len(bound) != rank:
            raise FormatError(f"encode and decode have arguments of shapes that are no Whisper program's: {bound}")
        return bound


def _keep_outputs(graph: Graph) -> Graph:
    """Of `encode`: hidden states, then keys and values of every layer."""
    hidden, *kept = graph.outputs
    return replace(_keep(graph, kept), outputs=(hidden,))


def _keep_inputs(graph: Graph) -> Graph:
    """Of `decode`: tokens and a position, then keys and values of every layer."""
    tokens, position, *kept = graph.inputs
    return replace(_keep(graph, kept), inputs=(tokens, position))


def _keep(graph: Graph, kept: Sequence[int]) -> Graph:
    values = list(graph.values)
    for number, value_id in enumerate(kept):
        values[value_id] = replace(graph.tensor(value_id), mutable=True, shared=(ELSEWHERE, number))
    return replace(graph, values=tuple(values))
