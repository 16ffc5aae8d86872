"""Devices and the methods that run on them: closing, and recovery after a loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Self

from ..container import MappedFile
from ..device import Gpu, WeightBuffers, acquire
from ..errors import ClosedError
from ..plan import Plan
from ..progress import CancelToken, OnProgress, cancellable, ignore
from .checks import ProcessGuard
from .method import Method


class DeviceResources:
    """The methods that share files, and the weights on each device they run on.

    `memory` limits the bytes that all programs of this process allocate on a device; see `load`.
    """

    def __init__(self, path: str, files: Sequence[MappedFile], memory: int | None) -> None:
        self._path = path
        self._files = files
        self._memory = memory
        self._methods: dict[Hashable, Method] = {}
        self._devices: list[tuple[Gpu, WeightBuffers]] = []
        self._closed = False
        self._process = ProcessGuard(path)
        self._lock = threading.RLock()  # taken before any lock of a method, and those before a device's

    def _method_of(self, key: Hashable, make: Callable[[], Method]) -> Method:
        """Return the method of a key, created at its first use."""
        if key not in self._methods:
            self._methods[key] = make()
        return self._methods[key]

    def _discard(self, method: Method) -> None:
        """Close a method and remove it. Loading it again creates a new one."""
        with self._locked():
            self._methods = {key: other for key, other in self._methods.items() if other is not method}
            method.close()

    def recover(self, progress: OnProgress = ignore, cancel: CancelToken | None = None) -> bool:
        """After DeviceLost: open another device and load everything again from the mapped file.

        Existing methods and forks work again, with their initial state; `Method.restore` restores a snapshot. Returns
        False if no device was lost. A recovery that fails, or is interrupted, may be repeated.
        """
        progress = cancellable(progress, cancel)
        with self._locked():
            self._check_open()
            lost = [pair for pair in self._devices if not pair[0].alive()]
            self._devices = [pair for pair in self._devices if pair not in lost]
            for gpu, weights in lost:
                weights.close()
                gpu.release()
            stranded = [method for method in self._methods.values() if method._stranded()]
            for method in stranded:
                method._release_lost()
            for method in stranded:
                method._recover(*self._device(method.plan), progress)
            return bool(lost or stranded)

    def close(self) -> None:
        """Release every GPU object and the mapped files. Safe to call twice.

        Waits for calls in other threads. In a child of `os.fork()` nothing happens: the parent owns all of it.
        """
        if not self._process.is_current:
            return
        with self._lock:
            self._closed = True
            for method in self._methods.values():
                method.close()
            self._methods.clear()
            while self._devices:
                gpu, weights = self._devices.pop()
                weights.close()
                gpu.release()
            for file in self._files:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _locked(self) -> threading.RLock:
        self._process.check()
        return self._lock

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._path} is closed")

    def _device(self, plan: Plan) -> tuple[Gpu, WeightBuffers]:
        """Return a device for the plan: one that is in use already if its limits suffice."""
        for gpu, weights in self._devices:
            gpu.check()
            if gpu.satisfies(plan.limits):
                return gpu, weights
        gpu = acquire(plan.limits)
        self._devices.append((gpu, WeightBuffers(gpu, self._memory)))
        return self._devices[-1]
