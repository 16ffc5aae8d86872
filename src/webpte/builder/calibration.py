"""Round the weights of a language model for their inputs: run it on the device, block by block, while it reads a text.

A block is a program of its own: its input are the hidden states after the blocks before it, which are quantized
already, and its outputs are the inputs of its linear layers. The weights of one block are in memory as floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np

from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import EMBEDDING, HEAD, UNQUANTIZED, Recipe, WeightFormat
from ..container import DType, ProgramFile
from ..errors import DeviceError
from ..progress import OnProgress, Progress, ignore
from ..runtime.method import Method
from ..runtime.program import PlanOptions, Program
from .compensation import InputMoments, compensated
from .context import ProgramSizes
from .decoder import DecoderTrace
from .layers import LayerTrace, WeightArrays
from .quantize import check_range
from .recipe import ProgramWeights, packed
from .trace import TracedInt, TracedTensor

Array = np.ndarray[Any, Any]
Unit = tuple[str, ...]  # layers of one input
EMBEDDING_ROWS = 1 << 12  # of the embedding are read together


class CalibratedWeights(ProgramWeights):
    """The parameters of a checkpoint, with layers that were rounded for their inputs. They are kept until read."""

    def __init__(self, source: Checkpoint) -> None:
        super().__init__(source)
        self._packed: dict[str, tuple[Array, Array]] = {}

    def codes(self, name: str, kind: WeightFormat) -> tuple[Array, Array]:
        return self._packed[name] if name in self._packed else super().codes(name, kind)

    def calibrate(self, names: Sequence[str], kind: WeightFormat, moments: InputMoments) -> None:
        """Round layers of one input and format together. Layers whose exact values the format has keep them."""
        names = [name for name in names if not self.is_exact(name, kind)]
        if not names:
            return
        weights = [self.read(f"{name}.weight") for name in names]
        for name, weight in zip(names, weights, strict=True):
            check_range(f"{name}.weight", weight)
        group = kind.group or weights[0].shape[1]
        together = compensated(np.concatenate(weights), group, kind.bits, moments)
        start = 0
        for name, weight in zip(names, weights, strict=True):
            self._packed[name] = packed(name, together.rows(slice(start, start + len(weight))), kind)
            start += len(weight)


def calibrated_weights(
    source: Checkpoint,
    recipe: Recipe,
    pieces: Sequence[Sequence[int]],
    sizes: ProgramSizes,
    progress: OnProgress = ignore,
) -> CalibratedWeights:
    """Return the weights of a checkpoint, rounded for the inputs that layers have in pieces of a text."""
    weights = CalibratedWeights(source)
    blocks = BlockPrograms(source, sizes)
    hidden = embedded(source, pieces)
    count = source.architecture.n_layers
    steps = _Steps(progress, 2 * count * sum(map(len, pieces)))
    with blocks:
        for number in range(count):
            moments: dict[Unit, Array] = {}
            with blocks.floats(number) as (method, units):
                for piece in hidden:
                    for unit, rows in zip(units, _call(method, piece)[1:], strict=True):
                        flat = rows.reshape(piece.shape[1], -1)  # (S, K)
                        moments[unit] = moments.get(unit, 0) + flat.T @ flat
                    steps.add(piece.shape[1])
            for unit, total in moments.items():
                _calibrate_unit(weights, recipe, unit, total)
            with blocks.quantized(number, recipe, weights) as method:
                for i, piece in enumerate(hidden):
                    hidden[i] = _call(method, piece)
                    steps.add(piece.shape[1])
    if recipe.linears.get(HEAD, UNQUANTIZED).bits == 4:  # with 8 bits the gain is small, and the head has many rows
        _calibrate_unit(weights, recipe, (HEAD,), _head_moments(source, hidden))
    return weights


def embedded(source: Checkpoint, pieces: Sequence[Sequence[int]]) -> list[Array]:
    """Return the hidden states of pieces before the first block, (1, S, N) each."""
    tokens = np.concatenate([np.asarray(piece) for piece in pieces])
    rows = np.empty((len(tokens), source.architecture.dim), np.float32)
    start = 0
    for part in source.weights.parts(f"{EMBEDDING}.weight", EMBEDDING_ROWS):
        inside = (tokens >= start) & (tokens < start + len(part))
        rows[inside] = part[tokens[inside] - start]
        start += len(part)
    ends = np.cumsum([len(piece) for piece in pieces])[:-1]
    return [part[None] for part in np.split(rows, ends)]


def _call(method: Method, hidden: Array) -> Any:
    """Return the outputs for tokens from position 0: a tuple, or an array if there is one."""
    return method(hidden, np.zeros(1, np.int64))


def _calibrate_unit(weights: CalibratedWeights, recipe: Recipe, unit: Unit, moments: Array) -> None:
    kinds = {name: recipe.linears[name] for name in unit if recipe.linears.get(name, UNQUANTIZED) != UNQUANTIZED}
    if not kinds:
        return
    damped = InputMoments(moments)
    for kind in dict.fromkeys(kinds.values()):
        weights.calibrate([name for name in kinds if kinds[name] == kind], kind, damped)


def _head_moments(source: Checkpoint, hidden: Sequence[Array]) -> Array:
    """Return the moments of the head's inputs, after the last norm."""
    rows = np.concatenate([piece[0] for piece in hidden])  # (tokens, N)
    squares = (rows * rows).mean(-1, keepdims=True)
    rows = rows / np.sqrt(squares + np.float32(source.architecture.norm_eps)) * source.weights.read("norm.weight")
    result: Array = rows.T @ rows
    return result


class _Steps:
    """Reports the tokens that blocks have read: each block reads the text twice."""

    def __init__(self, progress: OnProgress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self.add(0)

    def add(self, count: int) -> None:
        self._done += count
        self._progress(Progress("calibrate", self._done, self._total, "tokens"))


class BlockPrograms:
    """Programs of single blocks. As a context, it keeps the last one open, so that the next one has its kernels."""

    def __init__(self, source: Checkpoint, sizes: ProgramSizes) -> None:
        self._source = source
        self._sizes = sizes
        self._last: Program | None = None

    def __enter__(self) -> BlockPrograms:
        return self

    def __exit__(self, *exc: object) -> None:
        self._keep(None)

    @contextmanager
    def floats(self, number: int) -> Iterator[tuple[Method, list[Unit]]]:
        """Open a block in f32. Its outputs are the block's output and the inputs of its units."""
        layers = _InputTrace(self._source, Recipe({}), ProgramWeights(self._source))
        output = self._trace(layers, number)
        with self._open(layers, [output, *layers.units]) as method:
            yield method, [tuple(names) for names in layers.units.values()]

    @contextmanager
    def quantized(self, number: int, recipe: Recipe, weights: WeightArrays) -> Iterator[Method]:
        """Open a block as the program will have it."""
        layers = _InputTrace(self._source, recipe, weights)
        with self._open(layers, [self._trace(layers, number)]) as method:
            yield method

    def _trace(self, layers: LayerTrace, number: int) -> TracedTensor:
        max_context, max_tokens = self._sizes.max_context, self._sizes.max_tokens
        decoder = DecoderTrace(layers, self._source.architecture, max_context, max_tokens)
        hidden = layers.input("hidden", DType.FLOAT32, (1, TracedInt(max_tokens - 1), self._source.architecture.dim))
        first = layers.input("first", DType.INT64, (1,))
        output = decoder.block(hidden, number, decoder.positions(hidden, first))
        decoder.assign_states()
        return output

    @contextmanager
    def _open(self, layers: LayerTrace, outputs: Sequence[TracedTensor]) -> Iterator[Method]:
        recurrent = self._source.architecture.has_recurrent_state
        specs = {"require_dynamic_shapes": b"\1", "alias_buffer_mutations": bytes([recurrent])}
        traced = layers.method("forward", outputs, specs)
        file = ProgramFile("", 0, (traced.plan,), MappingProxyType(traced.named_data))
        program = Program(file, (), (), PlanOptions())
        try:
            method = program.method()
        except DeviceError as error:
            program.close()
            if error.code != "no_adapter":
                raise
            hint = "Calibration runs on a GPU. Export with --no-calibrate, or with torch: --exporter torch."
            raise DeviceError(str(error), code=error.code, hint=hint) from error
        self._keep(program)
        yield method

    def _keep(self, program: Program | None) -> None:
        last, self._last = self._last, program
        if last is not None:
            last.close()


class _InputTrace(LayerTrace):
    """A trace that notes which layers have one input."""

    def __init__(self, source: Checkpoint, recipe: Recipe, weights: WeightArrays) -> None:
        super().__init__(source.weights.sources, recipe.linears, weights)
        self.units: dict[TracedTensor, list[str]] = {}  # by their input

    def linear(self, x: TracedTensor, name: str, heads: int = 0) -> TracedTensor:
        self.units.setdefault(x, []).append(name)
        return super().linear(x, name, heads)
