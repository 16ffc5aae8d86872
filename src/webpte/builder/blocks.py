"""Programs of parts of a language model, for calibration and measurements: its blocks, and its head.

A block takes the hidden states after the blocks before it. Weights are read when a part is opened, so a model of any
size is run with one part in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import EMBEDDING, PER_LAYER_EMBEDDING, UNQUANTIZED, Recipe, WeightFormat
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


@dataclass
class PieceStates:
    """A piece of a text between two blocks, and what later blocks read besides its hidden states."""

    hidden: Array  # (1, S, N)
    per_layer: Array | None = None  # the embeddings of layers, (1, S, L, P)
    rows: dict[int, list[Array]] = field(default_factory=dict)  # keys and values that several layers read, (1, S, K, D)


@dataclass(frozen=True)
class BlockProgram:
    """The program of a block."""

    method: Method
    number: int
    shares: int | None  # the layer whose keys and values it reads
    is_shared: bool  # later layers read its keys and values: they are outputs after the first

    def __call__(self, piece: PieceStates, start: int = 0, stop: int | None = None) -> list[Array]:
        """Return the outputs for some tokens of a piece."""
        part = slice(start, stop)
        inputs = [piece.hidden[:, part], np.array([start])]
        inputs += [] if piece.per_layer is None else [piece.per_layer[:, part]]
        inputs += [] if self.shares is None else [rows[:, part] for rows in piece.rows[self.shares]]
        outputs = self.method(*inputs)
        return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def embedded(source: Checkpoint, pieces: Sequence[Sequence[int]], name: str = EMBEDDING) -> list[Array]:
    """Return the rows of an embedding for the tokens of pieces, (1, S, N) each."""
    tokens = np.concatenate([np.asarray(piece) for piece in pieces])
    rows = np.empty((len(tokens), source.weights.sources[f"{name}.weight"].shape[1]), np.float32)
    start = 0
    for part in source.weights.parts(f"{name}.weight", EMBEDDING_ROWS):
        inside = (tokens >= start) & (tokens < start + len(part))
        rows[inside] = part[tokens[inside] - start]
        start += len(part)
    return split_pieces(rows, pieces)


def embedded_codes(
    kind: WeightFormat, weights: ProgramWeights, pieces: Sequence[Sequence[int]], name: str = EMBEDDING
) -> list[Array]:
    """Return the same rows of an embedding in a format."""
    if kind == UNQUANTIZED:
        return embedded(weights.source, pieces, name)
    tokens = np.concatenate([np.asarray(piece) for piece in pieces])
    return split_pieces(weights.quantized(name, kind).rows(tokens).values(), pieces)


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

    def pieces(self, texts: Sequence[Sequence[int]], recipe: Recipe, weights: ProgramWeights) -> list[PieceStates]:
        """Return the states of texts before the first block."""
        hidden = embedded_codes(recipe.embedding, weights, texts)
        if not self._source.architecture.per_layer_dim:
            return [PieceStates(each) for each in hidden]
        kind = recipe.linears.get(PER_LAYER_EMBEDDING, UNQUANTIZED)
        rows = embedded_codes(kind, weights, texts, PER_LAYER_EMBEDDING)
        layers = _layers(self._source, recipe, weights)
        decoder, inputs = self._decoder(layers), self._hidden(layers)
        layers.size(inputs, 1)  # recorded before it is used
        output = decoder.per_layer(inputs, layers.input("rows", DType.FLOAT32, (*inputs.dims[:2], rows[0].shape[2])))
        method = self._open(layers, [output])
        return [PieceStates(x, self._calls(method, x, own)) for x, own in zip(hidden, rows, strict=True)]

    def float_block(self, number: int) -> tuple[BlockProgram, list[Unit]]:
        """Open a block in f32. Its last outputs are the inputs of its units."""
        layers = _InputTrace(self._source, FLOATS, ProgramWeights(self._source))
        outputs = self._trace(layers, number)
        return self._block(layers, [*outputs, *layers.units], number), [tuple(names) for names in layers.units.values()]

    def block(self, number: int, recipe: Recipe, weights: WeightArrays) -> BlockProgram:
        """Open a block as the program will have it."""
        layers = _layers(self._source, recipe, weights)
        return self._block(layers, self._trace(layers, number), number)

    def _block(self, layers: LayerTrace, outputs: Sequence[TracedTensor], number: int) -> BlockProgram:
        shares = self._source.architecture.layers[number].shares
        return BlockProgram(self._open(layers, outputs), number, shares, self._is_shared(number))

    def _is_shared(self, number: int) -> bool:
        return any(layer.shares == number for layer in self._source.architecture.layers)

    def head(self, recipe: Recipe, weights: WeightArrays) -> Method:
        """Open the last norm and the head: logits (1, S, V) of hidden states."""
        layers = _layers(self._source, recipe, weights)
        decoder = self._decoder(layers)
        hidden = self._hidden(layers)
        layers.size(hidden, 1)  # recorded before it is used
        return self._open(layers, [decoder.head(hidden)])

    def units(self, number: int) -> list[Unit]:
        """Return the layers of a block, grouped by their input."""
        layers = _InputTrace(self._source, FLOATS, ProgramWeights(self._source))
        self._trace(layers, number)
        return [tuple(names) for names in layers.units.values()]

    def run(self, block: BlockProgram, piece: PieceStates) -> PieceStates:
        """Return a piece after a block that has no units among its outputs."""
        parts = [block(piece, start, start + self._size) for start in range(0, piece.hidden.shape[1], self._size)]
        hidden, *rows = (np.concatenate(outputs, axis=1) for outputs in zip(*parts, strict=True))
        return PieceStates(
            hidden, piece.per_layer, {**piece.rows, block.number: rows} if block.is_shared else piece.rows
        )

    def logits(self, head: Method, hidden: Array) -> Array:
        """Return the logits of hidden states (1, S, N): (S, V)."""
        result: Array = self._calls(head, hidden)[0]
        return result

    def _calls(self, method: Method, *inputs: Array) -> Array:
        """Return the output for all tokens, in calls of as many as the program takes."""
        starts = range(0, inputs[0].shape[1], self._size)
        return np.concatenate([method(*(x[:, at : at + self._size] for x in inputs)) for at in starts], axis=1)

    @property
    def _size(self) -> int:
        return self._sizes.max_tokens - 1

    def _decoder(self, layers: LayerTrace) -> DecoderTrace:
        return DecoderTrace(layers, self._source.architecture, self._sizes.max_context, self._sizes.max_tokens)

    def _hidden(self, layers: LayerTrace) -> TracedTensor:
        dims = (1, TracedInt(self._size), self._source.architecture.dim)
        return layers.input("hidden", DType.FLOAT32, dims)

    def _trace(self, layers: LayerTrace, number: int) -> list[TracedTensor]:
        """Record a block; return its output, and keys and values that later layers read."""
        model, decoder = self._source.architecture, self._decoder(layers)
        hidden = self._hidden(layers)
        first = layers.input("first", DType.INT64, (1,))
        tokens, inputs = hidden.dims[:2], []
        if model.per_layer_dim:
            inputs.append(layers.input("per_layer", DType.FLOAT32, (*tokens, model.n_layers, model.per_layer_dim)))
        shares, dims = model.layers[number].shares, (*tokens, model.n_kv_heads, model.head_width(number))
        if shares is not None:
            inputs += [layers.input(name, DType.FLOAT32, dims) for name in ("keys", "values")]
        positions = decoder.positions(hidden, first)
        if model.per_layer_dim:
            positions.per_layer = inputs.pop(0)
        if shares is not None:
            decoder.write((inputs[0], inputs[1]), shares, positions)
        output = decoder.block(hidden, number, positions)
        decoder.assign_states()
        return [output, *(decoder.new_rows[number] if self._is_shared(number) else ())]

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
