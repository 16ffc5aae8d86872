"""A bundle, played natively: its methods run from the plans, kernels and weights that a page would use."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..container import MappedFile
from ..device import adapter_caps
from ..errors import DeviceError, FormatError, InputError
from ..plan import Plan
from ..plan.plan_reader import LoadedPlan, contents, read_plan
from ..plan.value_json import dtype_from_json, json_field, json_int, json_ints, json_list
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..text import sanitize_line
from ..wgsl import Caps
from .checks import check_bool, check_caps, check_method_name, described
from .checks import check_int as whole_number
from .kernels import CpuKernels
from .manifest import BundledFile, BundleVariant, Manifest
from .method import Method
from .program import MethodSource, Rewrite
from .saved_plan import lacking, refuse_device


class Bundle(MethodSource):
    """A folder that `webpte bundle` wrote, as a program: its methods run at the shapes that were bundled.

    Every file is checked against its hash before it is used. There is no graph in it, so nothing can be planned anew.
    """

    def __init__(self, manifest: Manifest, limits: Mapping[str, int], memory: int | None) -> None:
        self._store = _Store(manifest)
        super().__init__(manifest.folder, self._store.mapped, memory)
        self.manifest = manifest
        self._limits = limits
        self._opened: dict[str, LoadedPlan] = {}

    @property
    def method_names(self) -> tuple[str, ...]:
        return tuple(self.manifest.methods)

    @property
    def folder(self) -> str:
        """Where the bundle is."""
        return self._path

    def show(self) -> Any:
        """Return its page for a notebook, which runs on the GPU of the reader's browser: `webpte.widget`."""
        return sys.modules["webpte"].widget(self._path)  # not imported: this package must not depend on it

    def text(self, file: BundledFile) -> str:
        """One of its texts."""
        with self._locked():
            self._check_open()
            return self._store.text(file)

    def shapes(self, name: str) -> list[list[tuple[int, ...]]]:
        """Calls of a method that there are schedules for: the dims of each input. A language model tells none."""
        check_method_name(name, self.method_names)
        listed = self.manifest.data.get("shapes", {})
        calls = json_list(listed.get(name, []), "shapes") if isinstance(listed, dict) else []
        return [[json_ints(dims, "a dim") for dims in json_list(call, "the shapes of a call")] for call in calls]

    def array(self, sha256: str, offset: int, nbytes: int, dtype: str, dims: Sequence[int]) -> np.ndarray[Any, Any]:
        """An array out of one of its files, in a dtype of callers."""
        with self._locked():
            self._check_open()
            data = self._store.checked(self._store.by_hash(sha256)).view(offset, nbytes)
            return np.frombuffer(data, dtype_from_json(dtype).held).reshape(dims)

    def path(self, file: BundledFile) -> str:
        """Where one of its files lies, which is what it was when it was bundled."""
        with self._locked():
            self._check_open()
            return self._store.checked(file).path

    def method(
        self,
        name: str = "forward",
        rewrite: Rewrite | None = None,
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
        *,
        lazy: bool = False,
        slots: int | None = None,
        variant: BundleVariant | None = None,
    ) -> Method:
        """Return a method that is ready to be called: the first variant that this device can run, or a given one.

        `slots` asks for a variant with this number of caches. With `lazy`, kernels are compiled by the first call that
        needs them, instead of now.
        """
        if rewrite is not None:
            raise already_planned(self._path, "rewrite")
        progress = cancellable(progress, cancel)
        if variant is not None and not isinstance(variant, BundleVariant):
            raise InputError(f"variant is one of those that the manifest lists, or None, not {described(variant)}")
        check_bool(lazy, "lazy")
        with self._locked():
            self._check_open()
            chosen = variant or self._choose(name, slots)
            return self._kept((name, chosen.plan), lambda: self._play(self._read(chosen), progress, lazy))

    def plan(self, name: str = "forward", caps: Caps | None = None, rewrite: Rewrite | None = None) -> Plan:
        """How a method runs, on the machine's adapter or on one of given capabilities."""
        if rewrite is not None:
            raise already_planned(self._path, "rewrite")
        with self._locked():
            self._check_open()
            return self._read(self._choose(name, None, caps)).scheduler.plan

    def _choose(self, name: str, slots: int | None, caps: Caps | None = None) -> BundleVariant:
        found = self.manifest.methods[check_method_name(name, self.method_names)]
        check_caps(caps)
        if slots is not None:
            whole_number(slots, "slots", 1)
        of_slots = [variant for variant in found if slots is None or variant.slots == slots]
        if not of_slots:
            listed = sorted({variant.slots for variant in found if variant.slots is not None})
            raise InputError(
                f"{name} is bundled for {listed} sequences at once, not for slots={slots}", code="unknown_slots"
            )
        return choose(of_slots, caps or adapter_caps().within(self._limits), f"{self._path}: {name}")

    def _read(self, variant: BundleVariant) -> LoadedPlan:
        key = variant.plan.sha256
        if key not in self._opened:
            self._opened[key] = read_plan(_VariantFiles(self._store, variant), CpuKernels())
        return self._opened[key]

    def _play(self, opened: LoadedPlan, progress: OnProgress, lazy: bool) -> Method:
        scheduler, fingerprint = opened.scheduler, opened.fingerprint
        refuse_device(scheduler.plan, opened.features, adapter_caps())
        device = self._device(scheduler.plan)
        return Method(scheduler, *device, CpuKernels(), lambda: fingerprint, progress, lazy=lazy)

    def _signatures(self) -> dict[str, str]:
        return {
            name: f"{sanitize_line(name)}, planned for {len(found)} devices"
            for name, found in self.manifest.methods.items()
        }


def already_planned(folder: str, what: str) -> InputError:
    """Return the error for an operation, or options, that need a program's graph."""
    return InputError(
        f"{folder} is a bundle, which was planned when it was written; {what} needs a program",
        code="already_planned",
        hint="Load the .pte program.",
    )


def choose(variants: list[BundleVariant], caps: Caps, where: str) -> BundleVariant:
    """The first variant for the kind of device that has all it needs."""
    refused = []
    for variant in (variant for variant in variants if variant.device == caps.kind):
        missing = lacking(variant.features, variant.subgroup, variant.limits, caps)
        if not missing:
            return variant
        refused.append(f"{variant}: {'; '.join(missing)}")
    raise DeviceError(
        f"{where} has no variant that {caps.adapter} can run. {'. '.join(refused) or f'None is for a {caps.kind}'}.",
        code="no_variant",
    )


class _Store:
    """The files of a bundle, each mapped and verified once."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.mapped: list[MappedFile] = []
        self._known: dict[str, MappedFile] = {}

    def checked(self, wanted: BundledFile) -> MappedFile:
        if wanted.sha256 not in self._known:
            path = os.path.join(self._manifest.folder, *wanted.path.split("/"))
            file = MappedFile(path)  # or FormatError, by its path
            self.mapped.append(file)
            if file.size != wanted.nbytes or file.sha256() != wanted.sha256:
                file.close()
                raise FormatError(
                    f"{path}: is damaged: it has {file.size} bytes"
                    + (" whose hash is another" if file.size == wanted.nbytes else f", not {wanted.nbytes}")
                    + ". Copy or write the bundle again",
                    code="hash_mismatch",
                )
            self._known[wanted.sha256] = file
        return self._known[wanted.sha256]

    def text(self, wanted: BundledFile) -> str:
        file = self.checked(wanted)
        try:
            return str(file.view(0, file.size), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{file.path}: is no text: {error}") from error

    def by_hash(self, sha256: Any) -> BundledFile:
        found = self._manifest.files.get(sha256) if isinstance(sha256, str) else None
        if found is None:
            raise FormatError(f"it names a file {ascii(sha256)[:80]} that the manifest does not", code="unknown_file")
        return found


@dataclass(frozen=True)
class _VariantFiles:
    """A variant, as a plan that was saved: see plan.plan_files."""

    store: _Store
    variant: BundleVariant

    @property
    def name(self) -> str:
        return self.store.checked(self.variant.plan).path

    @property
    def mapped(self) -> list[MappedFile]:
        return self.store.mapped

    def document(self) -> str:
        return contents(self.store.checked(self.variant.plan), "plan bytes")

    def text(self, number: int, kernel: Any) -> str:
        """A range of the file that holds those of all kernels."""
        offset, size = (
            json_int(at, "where a kernel's text is") for at in json_list(json_field(kernel, "text"), "text", 2)
        )
        return str(self.store.checked(self.variant.wgsl).view(offset, size), "ascii")

    def constants(self, name: str, size: int, sha256: Any) -> MappedFile:
        return self.store.checked(self.store.by_hash(sha256))
