"""Map the parameters of a module to the tensors of a checkpoint, and refuse tensors that do not fit."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ..container import Span
from ..errors import FormatError, UnsupportedError
from .architecture import Architecture, Delta
from .ggml import GROUP, Affine, TensorType
from .gguf_reader import StoredTensor
from .safetensors_file import FloatTensor, Mxfp4Tensor

Array = np.ndarray[Any, Any]
XIELU_BETA = 0.5  # the factor of x in the activation xIELU
EMBEDDING, HEAD = "tok_embeddings.weight", "output.weight"


@dataclass(frozen=True)
class WeightSource:
    """The tensor of a checkpoint that a parameter is read from, and its conversion: rows, their order, a factor."""

    stored_name: str  # of the tensor in the checkpoint that holds the parameter, or has it as rows
    shape: tuple[int, ...]  # of the parameter
    first_row: int = 0
    stored_rows: int | None = None  # of the whole stored tensor, if it holds several parameters
    stack: int = 0  # of a stored tensor with the matrices or biases of experts: how many; rows are those of all
    stride: int = 1  # of its rows in the stored tensor: 2 if those of gates and values alternate
    # In rows of `heads` heads, `rotary_width` elements that rotate as halves become pairs of neighbors.
    heads: int = 0
    rotary_width: int = 0
    factor: float = 1.0
    offset: float = 0.0
    conv_dims: int = 0  # of a convolution: it is stored as (N, 1, L), or as (N, L); in the module it is (L, 1, N)
    softplus: bool = False  # of the stored numbers, before the factor
    rates: bool = False  # stored is -exp(x)
    tiles: tuple[int, int, int] | None = None  # of rows, channels or columns: see `grouped_order`
    tiled_columns: bool = False
    transposed: bool = False  # the matrix, or each of a stack, is stored (K, N)
    patch_side: int = 0  # of patches that are rows of pixels (N, S * S * 3); stored as a convolution (N, 3, S, S)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        if self.conv_dims:
            taps, _, channels = self.shape
            return (channels, 1, taps) if self.conv_dims == 3 else (channels, taps)
        if self.transposed and not self.stack:
            return self.shape[::-1]
        if self.patch_side:
            return (self.shape[0], 3, self.patch_side, self.patch_side)
        if self.stored_rows is None:
            return self.shape
        if self.stack:
            rows = self.stored_rows // self.stack
            return (self.stack, *self.shape[1:], rows) if self.transposed else (self.stack, rows, *self.shape[1:])
        return (self.stored_rows, *self.shape[1:])

    def convert(self, tensor: Array) -> Array:
        """Return the parameter that a stored tensor holds, contiguous."""
        if self.conv_dims:
            channels = slice(None) if self.tiles is None else self.grouped_order(self.shape[-1])
            return np.ascontiguousarray(tensor.reshape(self.shape[::-1])[channels].transpose(2, 1, 0))
        if self.transposed:
            return np.ascontiguousarray(tensor.T)
        if self.patch_side:
            return tensor.transpose(0, 2, 3, 1).reshape(self.shape)
        tensor = tensor[self.rows()]
        if self.tiled_columns:
            tensor = tensor[:, self.grouped_order(self.shape[1])]
        if self.rates:
            tensor = np.log(-tensor)
        if self.softplus:
            tensor = np.logaddexp(tensor, np.float32(0))
        if (self.factor, self.offset) != (1.0, 0.0):
            tensor = tensor * np.float32(self.factor) + np.float32(self.offset)
        return np.ascontiguousarray(tensor)

    def rows(self) -> Array | slice:
        """Return, for each row of the parameter, its row in the stored tensor."""
        first = self.first_row if self.stored_rows is not None else 0
        if self.tiles is not None and not self.tiled_columns:
            return self.grouped_order(self.shape[0])
        if not self.heads:
            return slice(first, first + (self.shape[0] - 1) * self.stride + 1, self.stride)
        size, half = self.shape[0] // self.heads, self.rotary_width // 2
        pairs = np.stack([np.arange(half), np.arange(half) + half], axis=1).reshape(-1)
        head = np.concatenate([pairs, np.arange(self.rotary_width, size)])  # (size,)
        order: Array = (np.arange(self.heads)[:, None] * size + head).reshape(-1) + first
        return order

    def grouped_order(self, count: int) -> Array:
        """Return where each of `count` elements is stored: heads that share a key are stored apart.

        After the first elements, each head has `size` of them; head j of key k is stored at j * keys + k.
        """
        assert self.tiles is not None
        first, keys, size = self.tiles
        heads = np.arange((count - first) // size).reshape(-1, keys).T.reshape(-1, 1)
        return np.concatenate([np.arange(first), (first + heads * size + np.arange(size)).reshape(-1)])


@dataclass(frozen=True)
class TensorNames:
    """Names of a module's parts in a checkpoint. Parts that share a name are rows of one tensor, in this order."""

    # In the module -> in the checkpoint, without ".weight"; "{}" are the numbers of a layer and of an expert.
    parts: Mapping[str, str]
    halves: bool = True  # elements that rotate together are half a head apart; otherwise they are neighbors
    conv_dims: int = 3  # of the weights of convolutions
    interleaved: bool = False  # the rows of the gates and values of an expert alternate
    transposed: bool = False  # the matrices of experts are stored (K, N)
    tiled: bool = False  # linear attention as in GGUF: rates of decay, and values that share a key apart

    def stored_name(self, name: str) -> str:
        """Return the checkpoint's name of a parameter. Parts may name a whole parameter, without a suffix then."""
        part, kind, numbers = pattern(name), name.rpartition(".")[2], _NUMBER.findall(name)
        if f"{part}.{kind}" in self.parts:
            return self.parts[f"{part}.{kind}"].format(*numbers)
        if part not in self.parts:
            raise FormatError(f"{name}: the family's TensorNames has no name for this parameter of its module")
        return f"{self.parts[part].format(*numbers)}.{kind}"


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a layer, or of an expert


def pattern(name: str) -> str:
    """Return the pattern of a name: `layers.7.attention.wq.weight` is `layers.{}.attention.wq`."""
    return _NUMBER.sub("{}", name.rpartition(".")[0])


def expert_number(name: str) -> int:
    """Return the number of the expert that a parameter belongs to, or 0."""
    return int(_NUMBER.findall(name)[1]) if ".experts." in name else 0


HUGGING_FACE = TensorNames(
    {
        "tok_embeddings": "model.embed_tokens",
        "norm": "model.norm",
        "output": "lm_head",
        "layers.{}.attention.wq": "model.layers.{}.self_attn.q_proj",
        "layers.{}.attention.wk": "model.layers.{}.self_attn.k_proj",
        "layers.{}.attention.wv": "model.layers.{}.self_attn.v_proj",
        "layers.{}.attention.wo": "model.layers.{}.self_attn.o_proj",
        "layers.{}.attention.q_norm": "model.layers.{}.self_attn.q_norm",
        "layers.{}.attention.k_norm": "model.layers.{}.self_attn.k_norm",
        "layers.{}.feed_forward.w1": "model.layers.{}.mlp.gate_proj",
        "layers.{}.feed_forward.w2": "model.layers.{}.mlp.down_proj",
        "layers.{}.feed_forward.w3": "model.layers.{}.mlp.up_proj",
        "layers.{}.attention_norm": "model.layers.{}.input_layernorm",
        "layers.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    }
)
GGUF = TensorNames(
    {
        "tok_embeddings": "token_embd",
        "norm": "output_norm",
        "output": "output",
        "layers.{}.attention.wq": "blk.{}.attn_q",
        "layers.{}.attention.wk": "blk.{}.attn_k",
        "layers.{}.attention.wv": "blk.{}.attn_v",
        "layers.{}.attention.wo": "blk.{}.attn_output",
        "layers.{}.attention.q_norm": "blk.{}.attn_q_norm",
        "layers.{}.attention.k_norm": "blk.{}.attn_k_norm",
        "layers.{}.feed_forward.w1": "blk.{}.ffn_gate",
        "layers.{}.feed_forward.w2": "blk.{}.ffn_down",
        "layers.{}.feed_forward.w3": "blk.{}.ffn_up",
        "layers.{}.attention_norm": "blk.{}.attn_norm",
        "layers.{}.ffn_norm": "blk.{}.ffn_norm",
    }
)
GGUF_IN_PAIRS = TensorNames(GGUF.parts, halves=False)

Shapes = Mapping[str, tuple[int, ...]]


def map_weights(shapes: Shapes, model: Architecture, names: TensorNames) -> dict[str, WeightSource]:
    """Return the source of each parameter; `shapes` has the shape of each by name."""
    order = {part: number for number, part in enumerate(names.parts)}
    sharing: dict[str, list[str]] = defaultdict(list)
    for name in shapes:
        if not (model.tied and name == HEAD):
            sharing[names.stored_name(name)].append(name)
    sources: dict[str, WeightSource] = {}
    for stored, together in sharing.items():
        first, rows = 0, sum(shapes[name][0] for name in together)
        count = len({expert_number(name) for name in together})
        stride = len(together) // count if names.interleaved else 1
        together.sort(key=lambda name: (expert_number(name), order.get(pattern(name), 0)))
        for number, name in enumerate(together):
            source = WeightSource(stored, shapes[name], **_conversion(name, model, names))
            if len(together) > 1:
                source = replace(
                    source,
                    first_row=first - number % stride * (shapes[name][0] - 1),  # of parts that alternate: neighbors
                    stored_rows=rows,
                    stack=count if count > 1 else 0,
                    stride=stride,
                    transposed=names.transposed and len(source.shape) == 2,
                )
            sources[name] = source
            first += shapes[name][0]
    if model.tied:
        sources[HEAD] = replace(sources[EMBEDDING], factor=model.logits_factor)
    return sources


_NORMS = (
    "norm", "attention_norm", "post_attention_norm", "ffn_norm", "post_ffn_norm", "attention.q_norm",
    "attention.k_norm",
)  # fmt: skip


def _conversion(name: str, model: Architecture, names: TensorNames) -> dict[str, Any]:
    """Return the conversion of a parameter: rows that rotate are reordered, and multipliers go into the weights."""
    part = pattern(name).removeprefix("layers.{}.")
    number = int(name.split(".")[1]) if name.startswith("layers.") else 0
    delta = model.layers[number].delta if name.startswith("layers.") else None
    if names.tiled and delta is not None and part.startswith("attention") and not part.endswith("_norm"):
        return _tiled(name, delta)
    if part.endswith(".conv"):
        return {"conv_dims": names.conv_dims}
    if name.endswith((".alpha_p", ".alpha_n")):
        return {"softplus": True, "offset": XIELU_BETA if name.endswith("n") else 0.0}
    heads = {
        "attention.wq": model.n_heads,
        "attention.wk": model.n_kv_heads,
        "attention.q_norm": 1 if model.qk_norm_by_head else model.n_heads,
        "attention.k_norm": 1 if model.qk_norm_by_head else model.n_kv_heads,
    }.get(part)
    factor = {
        "attention.q_norm" if model.qk_norm else "attention.wq": model.query_factor(number),
        "attention.wo": model.residual_factor,
        "feed_forward.w2": model.residual_factor,
        "experts.{}.w2": model.residual_factor,
        "tok_embeddings": model.embedding_factor,
        "output": model.logits_factor,
        **_per_layer_factors(model),
    }.get(part, 1.0)
    offset = model.norm_offset if part in _NORMS else 0.0
    conversion = {"factor": factor, "offset": offset * factor}
    if heads is None or not names.halves:
        return conversion
    rope = model.layers[number].rope
    return conversion | {"heads": heads, "rotary_width": model.ropes[rope].width if rope is not None else 0}


def _per_layer_factors(model: Architecture) -> dict[str, float]:
    """Return the factors of the embeddings of layers: the mean of a table's row and a projection, but for a root."""
    if not model.per_layer_dim:
        return {}
    return {
        "per_layer_embeddings": math.sqrt(model.per_layer_dim / 2),
        "per_layer_projection": model.dim**-0.5,
        "per_layer_norm": 0.5**0.5,
    }


def _tiled(name: str, sizes: Delta) -> dict[str, Any]:
    """Return the conversion of linear attention in GGUF."""
    part = name.removesuffix(".weight").rpartition(".")[2]
    first = 2 * sizes.key_heads * sizes.key_dim if part in ("qkv", "conv") else 0
    size = sizes.value_dim if part in ("qkv", "conv", "gate", "out") else 1
    conversion = {"conv_dims": 2 * (part == "conv"), "rates": part == "A_log"}
    if sizes.key_heads == sizes.value_heads:
        return conversion
    return {**conversion, "tiles": (first, sizes.key_heads, size), "tiled_columns": part == "out"}


def unread_names(model: Architecture, names: TensorNames) -> set[str]:
    """Return the names of the keys and values of layers that have those of others, which some files store."""
    parts = [part for part in ("wk", "wv", "k_norm") if f"layers.{{}}.attention.{part}" in names.parts]
    numbers = [number for number, layer in enumerate(model.layers) if layer.shares is not None]
    return {names.stored_name(f"layers.{number}.attention.{part}.weight") for number in numbers for part in parts}


class StoredWeight(Protocol):
    """A tensor of a checkpoint."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def span(self) -> Span: ...

    def read(self) -> Array:
        """Return the tensor as f32."""

    def part(self, start: int, stop: int) -> StoredWeight:
        """Return some of its rows."""


def rows_of_stack(tensor: StoredWeight, source: WeightSource) -> FloatTensor | StoredTensor | Mxfp4Tensor:
    """Return the matrices or biases of a stack as the rows of one."""
    assert isinstance(tensor, FloatTensor | StoredTensor | Mxfp4Tensor)
    columns = source.shape[1:]
    return tensor._replace(shape=(math.prod(tensor.shape) // math.prod(columns), *columns))


@dataclass(frozen=True)
class CheckpointWeights:
    """The parameters of a module, read one at a time from a checkpoint."""

    sources: Mapping[str, WeightSource]
    tensors: Mapping[str, StoredWeight]  # by the checkpoint's name

    def read(self, name: str) -> Array:
        """Return a parameter by name, as f32."""
        source = self.sources[name]
        if source.stack:
            (rows,) = self.parts(name, source.shape[0])
            return rows
        tensor = self.tensors[source.stored_name]
        weight = source.convert(tensor.read())
        tensor.span.file.release()
        return weight

    def parts(self, name: str, count: int) -> Iterator[Array]:
        """Yield a matrix as f32, `count` rows at a time if its rows are stored in their order."""
        source = self.sources[name]
        tensor, rows = self.tensors[source.stored_name], source.rows()
        if not isinstance(rows, slice) or (source.transposed and not source.stack):
            yield self.read(name)
            return
        if source.stride > 1 or source.transposed:
            alone = replace(source, first_row=0, stored_rows=None, stride=1, stack=0, transposed=False)
            yield alone.convert(self._spread_rows(source, tensor))
            tensor.span.file.release()
            return
        tensor = rows_of_stack(tensor, source) if source.stack else tensor
        for start in range(rows.start, rows.stop, count):
            stop = min(rows.stop, start + count)
            part = replace(source, shape=(stop - start, *source.shape[1:]), first_row=0, stored_rows=None, stack=0)
            yield part.convert(tensor.part(start, stop).read())
            tensor.span.file.release()

    def _spread_rows(self, source: WeightSource, tensor: StoredWeight) -> Array:
        """Return the rows of an expert that alternate with others, or are the columns of a stored matrix."""
        if not source.transposed:
            stored, rows = self._stored_matrix(source)
            return stored.read()[rows]
        count = tensor.shape[-1]  # rows of an expert
        expert, first = divmod(source.first_row, count)
        matrix: Array = tensor.part(expert, expert + 1).read()[0].T
        return matrix[first :: source.stride][: source.shape[0]]

    def stored_type(self, name: str) -> TensorType | None:
        """Return the type of a parameter that is quantized in the checkpoint."""
        source = self.sources[name]
        tensor = self.tensors[source.stored_name]
        if source.tiled_columns and source.tiles is not None and source.tiles[2] % GROUP:
            return None  # its groups have weights of several heads
        return tensor.type if isinstance(tensor, StoredTensor | Mxfp4Tensor) and tensor.type.bits < 16 else None

    def formats(self) -> dict[str, str]:
        """Return the format of each parameter that is stored quantized, by name."""
        types = ((name, self.stored_type(name)) for name in self.sources)
        return {name: kind.name for name, kind in types if kind is not None}

    def has_codes(self, name: str) -> bool:
        """Return whether a parameter is stored in codes that a program can hold as they are."""
        source, kind = self.sources[name], self.stored_type(name)
        changed = (
            source.conv_dims
            or source.patch_side
            or source.tiles is not None
            or (source.factor, source.offset) != (1.0, 0.0)
        )
        return kind is not None and kind.codes is not None and not changed

    def codes(self, name: str) -> tuple[Array, Array]:
        """Return the codes (N, K / 2) and scales (N, K / 32) of such a parameter."""
        tensor, rows = self._stored_matrix(self.sources[name])
        assert isinstance(tensor, StoredTensor | Mxfp4Tensor)
        codes, scales = tensor.codes()
        return codes[rows], scales[rows]

    def _stored_matrix(self, source: WeightSource) -> tuple[StoredWeight, Array | slice]:
        """Return the tensor that holds a parameter, with its own matrix only if it has several, and the rows of it."""
        tensor, rows = self.tensors[source.stored_name], source.rows()
        if source.stack and isinstance(rows, slice):
            return rows_of_stack(tensor, source).part(rows.start, rows.stop), slice(None, None, rows.step)
        return tensor, rows

    def affine(self, name: str) -> Affine | None:
        """Return the exact codes, steps and offsets of a parameter that is stored in groups of 32."""
        source = self.sources[name]
        tensor, rows = self._stored_matrix(source)
        stored = tensor.affine() if isinstance(tensor, StoredTensor) else None
        if stored is None or source.conv_dims or source.patch_side or source.offset or self.stored_type(name) is None:
            return None
        factor = np.float32(source.factor)
        codes, steps, offsets = stored.codes[rows], stored.steps[rows] * factor, stored.offsets[rows] * factor
        if source.tiled_columns:
            groups = source.grouped_order(source.shape[1])[::GROUP] // GROUP
            codes, steps, offsets = codes[:, groups], steps[:, groups], offsets[:, groups]
        return Affine(codes, steps, offsets)


def check_layers(where: str, layers: int, tensors: int) -> None:
    """Refuse more layers than tensors, before a module with that many layers is built."""
    if layers > tensors:
        raise FormatError(
            argument=where,
            expected=f"at least one tensor for each of {layers} layers",
            got=f"{tensors} tensors",
            code="layers",
        )


def check_tensors(
    where: str, family: str, shapes: Shapes, sources: Mapping[str, WeightSource], optional: Iterable[str]
) -> None:
    """Raise one error that lists all unknown tensors of a checkpoint, or all that are missing or of another shape.

    `optional` names tensors that may be present and are not read.
    """
    expected = {source.stored_name: source.stored_shape for source in sources.values()}
    if unknown := [name for name in shapes if name not in expected and name not in optional]:
        count = "a tensor" if len(unknown) == 1 else f"{len(unknown)} tensors"
        first = f"{where} has {count} that {family} models do not have; without them it would be another model:"
        raise UnsupportedError("\n".join([first, *by_layer(unknown)]), unknown, code="unknown_tensor")
    missing = [f"{name} is missing" for name in expected if name not in shapes]
    misfit = [
        f"{name}: expected the shape {list(shape)}, got {list(shapes[name])}"
        for name, shape in expected.items()
        if name in shapes and shapes[name] != shape
    ]
    if missing or misfit:
        lines = [f"{where} does not hold the model that it describes:", *(f"  {line}" for line in misfit)]
        raise FormatError("\n".join(lines + by_layer(missing)), code="tensors")


def by_layer(names: Iterable[str]) -> list[str]:
    """Return a line for each name, and one line for names that differ only by the layer."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[re.sub(r"(?<=\.)\d+(?=\.)", "*", name)].append(name)
    return [f"  {pattern} (x{len(same)})" if len(same) > 1 else f"  {same[0]}" for pattern, same in groups.items()]
