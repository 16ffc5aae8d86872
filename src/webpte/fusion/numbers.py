"""Tensors of one element whose value stands in the file: programs take them as numbers, which need no binding."""

from __future__ import annotations

from ..graph import Bool, Call, Double, Int, IntList, TensorSpec, Value, ValueList, numel
from .rewriter import Rewriter

# Where an op takes a number as well as a tensor.
_TAKES = {
    **{f"aten.{name}.Tensor": (0, 1) for name in ("add", "sub", "rsub", "mul", "div")},
    "aten.div.Tensor_mode": (0, 1),
    "aten.maximum.default": (0, 1),
    "aten.minimum.default": (0, 1),
    "aten.pow.Tensor_Tensor": (0, 1),
    "aten.where.self": (1, 2),
}
_FILLS = {  # where the value is among the arguments, and the size
    "aten.full.default": (1, 0),
    "aten::full.out": (1, 0),
    "aten.scalar_tensor.default": (0, None),
    "aten::scalar_tensor.out": (0, None),
}


class Numbers:
    """Known numbers of a graph that is being rewritten."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._ids: dict[int, int | None] = {}  # tensor -> the number in its place

    def arguments(self, call: Call, args: tuple[int, ...]) -> tuple[int, ...]:
        """The arguments, numbers for tensors where the op and the shape of its result allow it."""
        places = _TAKES.get(call.name, ())
        known = {position: found for position in places if (found := self._number(args[position])) is not None}
        ranks = [self._rank(value_id) for position, value_id in enumerate(args) if position not in known]
        widest = max(ranks, default=-1)
        return tuple(
            known[position] if position in known and self._rank(value_id) <= widest else value_id
            for position, value_id in enumerate(args)
        )

    def _rank(self, value_id: int) -> int:
        spec = self._rewriter.values[value_id]
        return len(spec.dims) if isinstance(spec, TensorSpec) else -1

    def _number(self, value_id: int) -> int | None:
        if value_id not in self._ids:
            number = self._read(value_id)
            self._ids[value_id] = None if number is None else self._rewriter.add(number)
        return self._ids[value_id]

    def _read(self, value_id: int) -> Value | None:
        rewriter = self._rewriter
        spec = rewriter.values[value_id]
        if not isinstance(spec, TensorSpec) or numel(spec.dims) != 1 or not rewriter.settled(value_id):
            return None
        if spec.constant is not None:
            value = spec.constant.array(spec.dims).item()
            return Bool(value) if isinstance(value, bool) else Int(value) if isinstance(value, int) else Double(value)
        maker = rewriter.maker(value_id)
        if maker is None:
            return None
        _, call = maker
        if call.name == "et_vk.prepack.default":
            return self._read(call.args[0])
        return self._filled(call) if call.name in _FILLS else None

    def _filled(self, call: Call) -> Value | None:
        value_at, size_at = _FILLS[call.name]
        sizes = self._rewriter.values[call.args[size_at]] if size_at is not None else IntList(())
        value = self._rewriter.values[call.args[value_at]]
        fixed = isinstance(sizes, IntList) or sizes == ValueList(())
        return value if fixed and isinstance(value, (Int, Double, Bool)) else None
