"""Plans that `Method.save` wrote. They run without reading a graph and without lowering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..device import adapter_caps
from ..errors import DeviceError
from ..plan import Plan
from ..plan.plan_reader import LoadedPlan, load_plan
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..text import sanitize_line, table
from ..typing import PathLike
from ..wgsl import Caps
from .arguments import signature
from .checks import check_list, check_memory_limit, check_path
from .kernels import CpuKernels
from .method import Method
from .program import DeviceResources


def open_plan(folder: PathLike, data: Iterable[PathLike] = (), *, memory: int | None = None) -> SavedPlan:
    """Open a folder that `Method.save` wrote. Its method runs only at the saved shapes.

    Its constants are in the files of the program, which are identified by hash: those in `data`, or files of the same
    name in the folder or beside it. Nothing else is read from them. `memory` is as in `load`.
    """
    where = check_path(folder, "folder")
    files = [
        check_path(one, f"data[{number}]")
        for number, one in enumerate(check_list(data, "data", "files", '["model.pte"]'))
    ]
    memory_limit = check_memory_limit(memory)
    opened = load_plan(where, files, CpuKernels())
    try:
        return SavedPlan(where, opened, memory_limit)
    except BaseException:
        for file in opened.files:
            file.close()
        raise


class SavedPlan(DeviceResources):
    """A saved plan. Use it as a context manager, or call `close`, to release GPU memory."""

    def __init__(self, folder: str, opened: LoadedPlan, memory: int | None) -> None:
        super().__init__(folder, opened.files, memory)
        self._opened = opened
        self.name = opened.scheduler.plan.graph.name
        """The name of the method."""

    def method(self, progress: OnProgress = ignore, cancel: CancelToken | None = None) -> Method:
        """Return the method, ready to be called; the same object until it is closed."""
        progress = cancellable(progress, cancel)
        with self._locked():
            self._check_open()
            return self._method_of(self.name, lambda: self._make_method(progress))

    def __repr__(self) -> str:
        return f"SavedPlan {sanitize_line(self.path)}{' (closed)' if self._closed else ''}\n  {self._signature()}"

    def _repr_html_(self) -> str:
        return table(f"SavedPlan {self.path}", {self.name: self._signature()})

    def _signature(self) -> str:
        plan = self._opened.scheduler.plan
        return signature(plan.graph, plan.dynamic_dims)

    def _make_method(self, progress: OnProgress) -> Method:
        scheduler, fingerprint = self._opened.scheduler, self._opened.fingerprint
        plan = scheduler.plan
        if not plan.flow.segments:
            return Method(scheduler, None, None, CpuKernels(), lambda: fingerprint, progress)
        refuse_device(plan, self._opened.features, adapter_caps())
        return Method(scheduler, *self._device(plan), CpuKernels(), lambda: fingerprint, progress)


def refuse_device(plan: Plan, features: Iterable[str], caps: Caps) -> None:
    """Raise one error that lists everything a plan requires and a device does not have."""
    if missing := lacking(features, plan.subgroup, plan.limits, caps):
        raise DeviceError(
            f"{plan.graph.name} requires more than {caps.adapter} has: {'; '.join(missing)}",
            code="over_limits",
            hint="Save it on this device, or for it: load(..., limits=...), WEBPTE_DEVICE=browser.",
        )


def lacking(features: Iterable[str], subgroup: int, limits: Mapping[str, int], caps: Caps) -> list[str]:
    """Return the requirements that a device does not meet."""
    missing = [name for name in features if name not in caps.features]
    if "subgroup" not in missing and caps.subgroup < subgroup:
        missing.append(f"subgroups of {subgroup} invocations (it has {caps.subgroup})")
    return missing + [
        f"{name} of {needed} (it has {caps.limit(name)})"
        for name, needed in limits.items()
        if needed > caps.limit(name)
    ]
