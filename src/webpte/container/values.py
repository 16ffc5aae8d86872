"""Parse the values of a .pte method. Slots are those of ``EValue`` in ExecuTorch's ``program.fbs``."""

from __future__ import annotations

from dataclasses import dataclass

from .dtypes import DType
from .files import Span
from .flat import FlatTable
from .tensor_data import TensorData, count_bytes, read_dim_order, read_dtype, read_sizes


@dataclass(frozen=True, slots=True)
class NullValue:
    """None."""


@dataclass(frozen=True, slots=True)
class IntValue:
    """An integer. If an instruction writes it, this is the initial value."""

    value: int


@dataclass(frozen=True, slots=True)
class BoolValue:
    """A boolean."""

    value: bool


@dataclass(frozen=True, slots=True)
class DoubleValue:
    """A floating point number."""

    value: float


@dataclass(frozen=True, slots=True)
class StringValue:
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor: its largest shape, and its initial data if any."""

    dtype: DType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]  # outermost to innermost in memory
    dynamic: bool = False  # ``sizes`` are upper bounds
    data: Span | None = None  # of exactly the size of the tensor
    external_name: str | None = None  # of its data in a .ptd file
    place: tuple[int, int] | None = None  # pool and offset of the memory that the exporter planned
    name: str | None = None  # fully qualified name in the exported module, if stored

    @property
    def planned(self) -> bool:
        return self.place is not None

    @property
    def nbytes(self) -> int:
        """Return the number of bytes at the largest shape."""
        return count_bytes(self.dtype, self.sizes)

    @property
    def mutable(self) -> bool:
        """Return whether its data is an initial value. Data without planned memory is constant."""
        return self.planned and (self.data is not None or self.external_name is not None)


@dataclass(frozen=True, slots=True)
class IntListValue:
    """Integers, each by the *id* of its value, since an instruction may compute it."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubleListValue:
    """Literal floating point numbers."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BoolListValue:
    """Literal booleans."""

    values: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class TensorListValue:
    """Tensors, by value id."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptionalTensorListValue:
    """Tensors by value id, or ``None``."""

    ids: tuple[int | None, ...]


EValue = (
    NullValue
    | IntValue
    | BoolValue
    | DoubleValue
    | StringValue
    | TensorValue
    | IntListValue
    | DoubleListValue
    | BoolListValue
    | TensorListValue
    | OptionalTensorListValue
)


def read_value(entry: FlatTable, count: int, data: TensorData) -> EValue:
    """Return one of the ``count`` values of a method."""
    kind, table = entry.union(0, "val")
    match kind:
        case 1:
            return NullValue()
        case 2:
            return IntValue(table.i64(0, "int_val"))
        case 3:
            return BoolValue(table.bool_(0, "bool_val"))
        case 4:
            return DoubleValue(table.f64(0, "double_val"))
        case 5:
            return _read_tensor(table, data)
        case 6:
            return StringValue(table.string(0, "string_val") or "")
        case 7:
            return IntListValue(table.indices(0, "items", count, "value", code="q"))
        case 8:
            return DoubleListValue(table.floats(0, "items"))
        case 9:
            return BoolListValue(table.bools(0, "items"))
        case 10:
            return TensorListValue(table.indices(0, "items", count, "value"))
        case 11:
            ids = table.indices(0, "items", count, "value", lowest=-1)
            return OptionalTensorListValue(tuple(None if i < 0 else i for i in ids))
    raise entry.error(f"value of unknown kind {kind}. The file may be newer than webpte", code="unknown_kind")


def _read_tensor(table: FlatTable, data: TensorData) -> TensorValue:
    dtype = read_dtype(table, 0, "scalar_type", DType.from_scalar_type)
    if offset := table.i32(1, "storage_offset"):
        raise table.error(
            f"expected 0, which is all that ExecuTorch supports, got {offset}", "storage_offset", code="storage_offset"
        )
    sizes = read_sizes(table, 2, "sizes", "i")
    dynamism = table.i8(8, "shape_dynamism")
    if dynamism not in (0, 1):
        raise table.error(
            f"expected 0 (static) or 1 (bounded), got {dynamism}: the shape has no upper bound."
            " Export again with torch.export.Dim(..., max=...)",
            "shape_dynamism",
            code="unbounded_shape",
        )
    extra = table.table(9, "extra_tensor_info")
    name = extra.label(1, "fully_qualified_name") if extra else None
    external = extra is not None and extra.i8(2, "location") == 1
    if external and not name:
        raise table.error("external data without a fully_qualified_name", "extra_tensor_info", code="missing_field")
    place = _read_place(table.table(6, "allocation_info"))
    number, size = table.u32(5, "data_buffer_idx"), count_bytes(dtype, sizes)
    span = None
    if number and not external and place is not None:
        region = extra.u64(0, "mutable_data_segments_idx") if extra else 0
        span = data.initial_value(table, number, size, name, region)
    elif number and not external:
        span = data.constant(table, number, size, name)
    return TensorValue(
        dtype=dtype,
        sizes=sizes,
        dim_order=read_dim_order(table, 3, "dim_order", len(sizes)),
        dynamic=dynamism == 1,
        data=span,
        external_name=name if external else None,
        place=place,
        name=name,
    )


def _read_place(info: FlatTable | None) -> tuple[int, int] | None:
    if info is None:
        return None
    return info.u32(0, "memory_id"), info.u32(1, "memory_offset_low") | info.u32(2, "memory_offset_high") << 32
