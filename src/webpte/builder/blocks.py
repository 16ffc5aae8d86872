"""Programs of parts of a language model, for calibration and measurements: its blocks, and its head.

A block takes the hidden states after the blocks before it. Weights are read when a part is opened, so a model of any
size is run with one part in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import EMBEDDING, Recipe
from ..container import DType, ProgramFile
from ..errors import DeviceError
from ..progress import OnProgress, Progress
from ..runtime.method import Method
from ..runtime.program import PlanOptions, Program
from ..typing import Array
from .context import ProgramSizes
from .decoder import DecoderTrace
from .layers import LayerTrace, WeightArrays
from .recipe import ProgramWeights
from .trace import TracedInt, TracedTensor

Unit = tuple[str, ...]  # layers of one input
EMBEDDING_ROWS = 1 << 12  # of the embedding are read together
FLOATS = Recipe({})


def embedded(source: Checkpoint, pieces: Sequence[Sequence[int]]) -> list[Array]:
    """Return the hidden states of pieces before the first block, (1, S, N) each."""
    tokens = np.concatenate([np.asarray(piece) for piece in pieces])
    rows = np.empty((len(tokens), source.architecture.dim), np.float32)
    start = 0
    for part in source.weights.parts(f"{EMBEDDING}.weight", EMBEDDING_ROWS):
        inside = (tokens >= start) & (tokens < start + len(part))
        rows[inside] = part[tokens[inside] - start]
        start += len(part)
    return split_pieces(rows, pieces)


def split_pieces(rows: Array, pieces: Sequence[Sequence[int]]) -> list[Array]:
    """Return the rows (tokens, N) of each piece, (1, S, N)."""
    ends = np.cumsum([len(piece) for piece in pieces])[:-1]
    return [part[None] for part in np.split(rows, ends)]


class TokenProgress:
    """Reports the tokens that parts of a model have read."""

    def __init__(self, progress: OnProgress, stage: str, total: int) -> None:
        self._progress, self._stage, self._total, self._done = progress, stage, total, 0
        self.add(0)

    def add(self, count: int) -> None:
        self._done += count
        self._progress(Progress(self._stage, self._done, self._total, "tokens"))


class BlockPrograms:
    """Opens parts of a model, as a context. The last `keep` parts stay open, so that the next one has their kernels."""

    def __init__(self, source: Checkpoint, sizes: ProgramSizes, keep: int = 1) -> None:
        self._source = source
        self._sizes = sizes
        self._keep = keep
        self._programs: deque[Program] = deque()

    def __enter__(self) -> BlockPrograms:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._programs:
            self._programs.popleft().close()

    def float_block(self, number: int) -> tuple[Method, list[Unit]]:
        """Open a block in f32. Its outputs are the block's output and the inputs of its units."""
        layers = _InputTrace(self._source, FLOATS, ProgramWeights(self._source))
        output = self._trace(layers, number)
        method = self._open(layers, [output, *layers.units])
        return method, [tuple(names) for names in layers.units.values()]

    def block(self, number: int, recipe: Recipe, weights: WeightArrays) -> Method:
        """Open a block as the program will have it."""
        layers = _layers(self._source, recipe, weights)
        return self._open(layers, [self._trace(layers, number)])

    def head(self, recipe: Recipe, weights: WeightArrays) -> Method:
        """Open the last norm and the head: logits (1, S, V) of hidden states."""
        layers = _layers(self._source, recipe, weights)
        decoder = DecoderTrace(layers, self._source.architecture, self._sizes.max_context, self._sizes.max_tokens)
        hidden = self._hidden(layers)
        layers.size(hidden, 1)  # recorded before it is used
        return self._open(layers, [decoder.head(hidden)])

    def units(self, number: int) -> list[Unit]:
        """Return the layers of a block, grouped by their input."""
        layers = _InputTrace(self._source, FLOATS, ProgramWeights(self._source))
        self._trace(layers, number)
        return [tuple(names) for names in layers.units.values()]

    def run(self, method: Method, hidden: Array) -> Array:
        """Return the output of a block that has no other outputs, in calls of as many tokens as the program takes."""
        return self._calls(hidden, lambda part, at: method(part, np.array([at])))

    def logits(self, head: Method, hidden: Array) -> Array:
        """Return the logits of hidden states (1, S, N): (S, V)."""
        result: Array = self._calls(hidden, lambda part, at: head(part))[0]
        return result

    def _calls(self, hidden: Array, call: Callable[[Array, int], Array]) -> Array:
        size = self._sizes.max_tokens - 1
        parts = [call(hidden[:, at : at + size], at) for at in range(0, hidden.shape[1], size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _hidden(self, layers: LayerTrace) -> TracedTensor:
        dims = (1, TracedInt(self._sizes.max_tokens - 1), self._source.architecture.dim)
        return layers.input("hidden", DType.FLOAT32, dims)

    def _trace(self, layers: LayerTrace, number: int) -> TracedTensor:
        decoder = DecoderTrace(layers, self._source.architecture, self._sizes.max_context, self._sizes.max_tokens)
        hidden = self._hidden(layers)
        first = layers.input("first", DType.INT64, (1,))
        output = decoder.block(hidden, number, decoder.positions(hidden, first))
        decoder.assign_states()
        return output

    def _open(self, layers: LayerTrace, outputs: Sequence[TracedTensor]) -> Method:
        recurrent = self._source.architecture.has_recurrent_state
        specs = {"require_dynamic_shapes": b"\1", "alias_buffer_mutations": bytes([recurrent])}
        traced = layers.method("forward", outputs, specs)
        file = ProgramFile("", 0, (traced.plan,), MappingProxyType(traced.named_data))
        program = Program(file, (), (), PlanOptions())
        try:
            method = program.method()
        except BaseException as error:
            program.close()
            if isinstance(error, DeviceError) and error.code == "no_adapter":
                hint = "Calibration and measurements run on a GPU. Export with --no-calibrate and without --quality."
                raise DeviceError(str(error), code=error.code, hint=hint) from error
            raise
        self._programs.append(program)
        while len(self._programs) > self._keep:
            self._programs.popleft().close()
        return method


def _layers(source: Checkpoint, recipe: Recipe, weights: WeightArrays) -> LayerTrace:
    return LayerTrace(source.weights.sources, recipe.linears, weights)


class _InputTrace(LayerTrace):
    """A trace that notes which layers have one input."""

    def __init__(self, source: Checkpoint, recipe: Recipe, weights: WeightArrays) -> None:
        super().__init__(source.weights.sources, recipe.linears, weights)
        self.units: dict[TracedTensor, list[str]] = {}  # by their input

    def linear(self, x: TracedTensor, name: str, heads: int = 0) -> TracedTensor:
        self.units.setdefault(x, []).append(name)
        return super().linear(x, name, heads)
