"""How ops that move, cut and convolve make the dims of their results from names and sizes: see dims.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..graph import Bool, Call, Int, Null, TensorSpec, normalize_dim
from ..graph.programs import COPIES

if TYPE_CHECKING:
    from .dims import Dim, Dims, LiveDims

Rule = Callable[["LiveDims", Call], "list[Dims]"]
UNLIMITED = 2**31 - 1  # the end of a slice that goes to the end


def _like_first(live: LiveDims, call: Call) -> list[Dims]:
    return [live.of(call.args[0])]


def _gathered(live: LiveDims, call: Call) -> list[Dims]:
    return [live.of(call.args[2])]


def _permuted(live: LiveDims, call: Call) -> list[Dims]:
    dims = live.of(call.args[0])
    order = [axis for axis in live.sizes(call.args[1]) if isinstance(axis, int)]
    return [tuple(dims[axis] for axis in order)]


def _transposed(live: LiveDims, call: Call) -> list[Dims]:
    dims = list(live.of(call.args[0]))
    a, b = (_axis(live, value_id, len(dims)) for value_id in call.args[1:3])
    dims[a], dims[b] = dims[b], dims[a]
    return [tuple(dims)]


def _unsqueezed(live: LiveDims, call: Call) -> list[Dims]:
    dims = live.of(call.args[0])
    axis = _axis(live, call.args[1], len(dims) + 1)
    return [(*dims[:axis], 1, *dims[axis:])]


def _selected(live: LiveDims, call: Call) -> list[Dims]:
    dims = live.of(call.args[0])
    axis = _axis(live, call.args[1], len(dims))
    return [(*dims[:axis], *dims[axis + 1 :])]


def _sliced(live: LiveDims, call: Call) -> list[Dims]:
    """From the start: as many as the end says, where it cannot be beyond the last."""
    x, axis_id, start, end, step = call.args
    dims, values = live.of(x), live.graph.values
    axis = _axis(live, axis_id, len(dims))
    if values[step] != Int(1) or values[start] not in (Int(0), Null()):
        return []
    size = live.scalar(end) if not isinstance(values[end], Null) else UNLIMITED
    if isinstance(size, int) and size >= UNLIMITED:
        return [dims]
    if size != dims[axis] and not live.at_most(size, dims[axis]):
        return []
    return [(*dims[:axis], size, *dims[axis + 1 :])]


def _convolved(live: LiveDims, call: Call) -> list[Dims]:
    x, weight_id, _, stride, padding, dilation, transposed = call.args[:7]
    weight, dims = live.graph.values[weight_id], live.of(x)
    if not isinstance(weight, TensorSpec) or live.graph.values[transposed] != Bool(False):
        return []
    axes = len(weight.dims) - 2
    given = [live.sizes(value_id) for value_id in (stride, padding, dilation)]
    rows = zip(dims[len(dims) - axes :], weight.dims[2:], *(v * axes if len(v) == 1 else v for v in given), strict=True)
    return [(*dims[: len(dims) - axes - 1], weight.dims[0], *(_extent(live, *row) for row in rows))]


def _extent(live: LiveDims, size: Dim, kernel: int, stride: Dim, padding: Dim, dilation: Dim) -> Dim:
    if not isinstance(stride, int) or not isinstance(padding, int) or not isinstance(dilation, int):
        raise ValueError("a geometry that changes")
    less = dilation * (kernel - 1) - 2 * padding  # what the kernel takes from the size
    if isinstance(size, int):
        return (size - less - 1) // stride + 1
    return size if (less, stride) == (0, 1) else live.derived(size, less, stride)


def _axis(live: LiveDims, value_id: int, rank: int) -> int:
    axis = live.graph.values[value_id]
    if not isinstance(axis, Int):
        raise ValueError("an axis that changes")
    return normalize_dim(axis.value, rank)


RULES: dict[str, Rule] = {
    **dict.fromkeys(COPIES, _like_first),
    "aten._log_softmax.default": _like_first,
    "aten._native_batch_norm_legit_no_training.default": _like_first,
    "aten._softmax.default": _like_first,
    "aten.convolution.default": _convolved,
    "aten::convolution.out": _convolved,
    "aten.gather.default": _gathered,
    "aten.native_group_norm.default": _like_first,
    "aten.permute.default": _permuted,
    "aten.permute_copy.default": _permuted,
    "aten.select_copy.int": _selected,
    "aten.slice_copy.Tensor": _sliced,
    "aten.transpose_copy.int": _transposed,
    "aten.unsqueeze_copy.default": _unsqueezed,
    "et_vk.conv_with_clamp.default": _convolved,
    "et_vk.prepack.default": _like_first,
}
