"""The programs with state that tests run, by name, and what the exporter makes of those it cannot do. No torch here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ..export.exporting import SUPPORT, Exported, cache_root, kept, key_of
from ..export.sources import defines, definitions_hash

LOWERING = (SUPPORT / "export" / "state_lowering.py", "write")
FILES = tuple(Path(__file__).with_name(name) for name in ("state.py", "state_caches.py"))
LAYERS = (
    "accumulated", "batch_statistics", "difference", "ema", "flags", "halves", "largest_so_far", "learned",
    "many_counters", "never_read", "recurrent", "returned", "returned_twice", "ring", "rolled", "running_mean",
    "state_space", "streamed_convolution", "swapped", "window",
)  # fmt: skip
CACHES = (
    "added_at_indices", "attention", "by_fixed_slice", "by_index_copy", "by_index_put", "by_mask", "by_scatter",
    "by_several_indices", "by_slice", "of_any_length", "position_inside", "state_decides", "under_a_branch",
)  # fmt: skip
OUTSIDE = (  # delegates: what the exporter refuses or loses inside, and some of each kind
    "batch_statistics", "by_index_put", "by_mask", "by_slice", "ema", "flags", "halves", "many_counters",
    "of_any_length", "position_inside", "recurrent", "returned", "returned_twice", "ring", "rolled", "running_mean",
    "swapped", "under_a_branch", "window",
)  # fmt: skip
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "counter_i64": ("counter", {}),
    "counter_i32": ("counter", {"dtype": "int32"}),
    "counter_i64_from_41": ("counter", {"start": 41}),
    "counter_i64_outside": ("counter", {"inside": False}),
    "counter_alone": ("counter_alone", {}),
    "counter_alone_from_five_billion": ("counter_alone", {"start": 5_000_000_000}),
    "ema_from_one": ("ema", {"start": 1.0}),
    "ema_from_one_outside": ("ema", {"start": 1.0, "inside": False}),
    "ema_dynamic": ("ema", {"dynamic": True}),
    "bytes": ("history_of_bytes", {}),
    **{f"state_{dtype}": ("wide", {"dtype": dtype}) for dtype in ("float64", "int16", "uint8")},
    "by_index_put_reinplaced": ("by_index_put", {"reinplace": True}),
    **{f"by_index_put_{dtype}": ("by_index_put", {"dtype": dtype}) for dtype in ("int64", "float16", "uint8")},
    "methods_that_share": ("methods_that_share", {}),
}
BUILDERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in (*LAYERS, *CACHES)},
    **{f"{name}_outside": (name, {"inside": False}) for name in OUTSIDE},
    **MORE,
}
REFUSED = {  # by the exporter, with its error
    "returned": "buffer mutation node was found to also be used as other types of outputs",
    "returned_twice": "buffer mutation node was found to also be used as other types of outputs",
    "rolled": "FuseBatchNormPass",
    "window": "Tried to erase Node getitem",
}
LOST = {  # by the exporter, which writes another program than was traced: what comes of it
    "position_inside": "elements differ",  # the position is a constant there, and the call that counted it is gone
    "ring": "of that shape which is zero",  # the delegate that counts has a position of its own
    **dict.fromkeys(("batch_statistics", "many_counters", "swapped"), "file does not say which"),  # of several equal
}
FORMS = [name for name in BUILDERS if name not in REFUSED and name not in LOST]


def export_form(name: str) -> Exported:
    """The program, or what the exporter said, from the cache or made now."""
    function, params = BUILDERS[name]
    file = next(file for file in FILES if defines(file, function))

    def write(folder: Path) -> None:
        builder = getattr(import_module(f"{__package__}.{file.stem}"), function)
        import_module("tests.support.export.state_lowering").write(builder, params, folder)

    sources = definitions_hash(LOWERING, (file, function))
    return kept(cache_root() / key_of(sources, function, params), name, params, write)


def refusal(exported: Exported) -> str | None:
    """Return the exporter's error message."""
    file = exported.folder / "refused.txt"
    return file.read_text() if file.exists() else None
