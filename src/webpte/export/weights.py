"""Map the parameters of a module to the tensors of a checkpoint, and refuse tensors that do not fit."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, UnsupportedError
from .architecture import Architecture

if TYPE_CHECKING:
    import torch

EMBEDDING, HEAD = "tok_embeddings.weight", "output.weight"


@dataclass(frozen=True)
class WeightSource:
    """Where a tensor of the module is in a checkpoint, and what is done to it: rows are chosen, reordered, scaled."""

    stored: str  # the checkpoint's name of the tensor that it is, or is rows of
    shape: tuple[int, ...]  # in the module
    first_row: int = 0
    stored_rows: int | None = None  # of all that lies behind that name; None: of this alone
    # Rows of so many heads, of which `turning` elements turn as halves, become pairs of neighbours.
    heads: int = 0
    turning: int = 0
    factor: float = 1.0
    plus: float = 0.0
    taps: bool = False  # of a convolution: stored as (N, 1, L), in the module (L, 1, N)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        if self.taps:
            return self.shape[::-1]
        return self.shape if self.stored_rows is None else (self.stored_rows, *self.shape[1:])

    def convert(self, tensor: torch.Tensor) -> torch.Tensor:
        """From the stored tensor to the module's."""
        if self.taps:
            return tensor.permute(2, 1, 0)
        if self.stored_rows is not None:
            tensor = tensor[self.first_row : self.first_row + self.shape[0]]
        if self.heads:
            tensor = tensor[self.order()]
        if (self.factor, self.plus) != (1.0, 0.0):
            tensor = tensor * self.factor + self.plus
        return tensor

    def order(self) -> torch.Tensor:
        """The row, before it is reordered, of each row of the module."""
        import torch

        size, half = self.shape[0] // self.heads, self.turning // 2
        pairs = torch.stack([torch.arange(half), torch.arange(half) + half], dim=1).reshape(-1)
        head = torch.cat([pairs, torch.arange(self.turning, size)])  # (size,)
        return (torch.arange(self.heads)[:, None] * size + head).reshape(-1)


@dataclass(frozen=True)
class TensorNames:
    """How a kind of checkpoint calls the parts of a module; parts of one name are rows of one tensor, in this order."""

    parts: Mapping[str, str]  # of the module -> of the checkpoint, without ".weight"; "{}" is the number of a layer
    halves: bool = True  # elements that turn together are half a head apart; else they stand beside each other

    def stored(self, name: str) -> str:
        """The checkpoint's name of a tensor of the module."""
        part, kind = pattern(name), name.rpartition(".")[2]
        if part not in self.parts:
            raise FormatError(f"the family gives no name to {name}, which its module has")
        return f"{self.parts[part].format(*re.findall(r'[0-9]+', name)[:1])}.{kind}"


def pattern(name: str) -> str:
    """`layers.7.attention.wq.weight` -> `layers.{}.attention.wq`."""
    return re.sub(r"^layers\.\d+\.", "layers.{}.", name.rpartition(".")[0])


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
    """Of each tensor of the module (shape by name) the place in a checkpoint."""
    order = {part: number for number, part in enumerate(names.parts)}
    sharing: dict[str, list[str]] = defaultdict(list)
    for name in shapes:
        if not (model.tied and name == HEAD):
            sharing[names.stored(name)].append(name)
    found: dict[str, WeightSource] = {}
    for stored, together in sharing.items():
        first, rows = 0, sum(shapes[name][0] for name in together)
        for name in sorted(together, key=lambda name: order[pattern(name)]):
            place = WeightSource(stored, shapes[name], **_changes(name, model, names.halves))
            found[name] = replace(place, first_row=first, stored_rows=rows) if len(together) > 1 else place
            first += shapes[name][0]
    if model.tied:
        found[HEAD] = replace(found[EMBEDDING], factor=model.logits_factor)
    return found


_NORMS = (
    "norm", "attention_norm", "post_attention_norm", "ffn_norm", "post_ffn_norm", "attention.q_norm",
    "attention.k_norm",
)  # fmt: skip


def _changes(name: str, model: Architecture, halves: bool) -> dict[str, Any]:
    """What a decoder does to a tensor: reorder what turns, and multiply in what would cost a pass of its own."""
    part = pattern(name).removeprefix("layers.{}.")
    if part.endswith(".conv"):
        return {"taps": True}
    heads = {
        "attention.wq": model.n_heads,
        "attention.wk": model.n_kv_heads,
        "attention.q_norm": 1,
        "attention.k_norm": 1,
    }.get(part)
    factor = {
        "attention.q_norm" if model.qk_norm else "attention.wq": model.query_factor,
        "attention.wo": model.residual_factor,
        "feed_forward.w2": model.residual_factor,
        "tok_embeddings": model.embedding_factor,
        "output": model.logits_factor,
    }.get(part, 1.0)
    offset = model.norm_offset if part in _NORMS else 0.0
    changes = {"factor": factor, "plus": offset * factor}
    if heads is None or not halves:
        return changes
    rope = model.layers[int(name.split(".")[1])].rope
    return changes | {"heads": heads, "turning": model.ropes[rope].width if rope is not None else 0}


class CheckpointWeights:
    """The tensors of a module, read one at a time from a checkpoint."""

    def __init__(
        self,
        sources: Mapping[str, WeightSource],
        load: Callable[[str], torch.Tensor],
        formats: Mapping[str, str] | None = None,
    ) -> None:
        self.sources = sources
        self._load = load  # by the checkpoint's name, as f32
        self._formats = formats or {}  # by the checkpoint's name, of those that are stored quantised

    def formats(self) -> dict[str, str]:
        """By the module's name, of the tensors that are stored quantised."""
        stored = ((name, self._formats.get(place.stored)) for name, place in self.sources.items())
        return {name: found for name, found in stored if found is not None}

    def read(self, name: str) -> torch.Tensor:
        """By the module's name, as f32 in the module's shape."""
        return self.sources[name].convert(self._load(self.sources[name].stored)).contiguous()


def check_layers(where: str, layers: int, tensors: int) -> None:
    """Refuse more layers than tensors before a module with so many is built."""
    if layers > tensors:
        raise FormatError(f"{where} describes a model of {layers} layers, and has {tensors} tensors", code="layers")


def check_tensors(
    where: str, family: str, found: Shapes, wanted: Mapping[str, WeightSource], spare: Iterable[str]
) -> None:
    """Raise one error with every tensor that is left over, or with all that are missing or misfit.

    `spare` may be there and are not needed.
    """
    shapes = {place.stored: place.stored_shape for place in wanted.values()}
    if strange := [name for name in found if name not in shapes and name not in spare]:
        count = "a tensor" if len(strange) == 1 else f"{len(strange)} tensors"
        first = f"{where} has {count} that no part of a {family} takes; without them it would be another model:"
        raise UnsupportedError("\n".join([first, *by_layer(strange)]), strange)
    missing = [f"{name} is missing" for name in shapes if name not in found]
    wrong = [
        f"{name} is {list(found[name])}, not {list(shape)}"
        for name, shape in shapes.items()
        if name in found and found[name] != shape
    ]
    if missing or wrong:
        lines = [f"{where} does not hold the model it describes:", *(f"  {line}" for line in wrong)]
        raise FormatError("\n".join(lines + by_layer(missing)))


def by_layer(names: Iterable[str]) -> list[str]:
    """A line per name; one for all layers that repeat it."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[re.sub(r"(?<=\.)\d+(?=\.)", "*", name)].append(name)
    return [f"  {pattern} (x{len(same)})" if len(same) > 1 else f"  {same[0]}" for pattern, same in groups.items()]
