"""Bundles, run natively: their methods run from the plans, kernels and weights that a page would use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..container import MappedFile
from ..deferred import show_in_notebook
from ..device import adapter_caps
from ..errors import DeviceError, FormatError, InputError
from ..plan import Plan
from ..plan.plan_reader import LoadedPlan, contents, read_plan
from ..plan.value_json import json_field, json_int, json_ints, json_list
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..text import sanitize_line
from ..wgsl import Caps
from .checks import check_bool, check_caps, check_method_name, wrong_argument
from .checks import check_int as whole_number
from .kernels import CpuKernels
from .manifest import BundledFile, BundleVariant, Manifest
from .method import Method
from .program import MethodSource, Rewrite
from .saved_plan import lacking, refuse_device


class Bundle(MethodSource):
    """A folder that `webpte bundle` wrote. Its methods run at the bundled shapes.

    Every file is checked against its hash before it is used. A bundle has no graph, so no other plan can be made.
    """

    def __init__(self, manifest: Manifest, limits: Mapping[str, int], memory: int | None) -> None:
        self._store = _Store(manifest)
        super().__init__(manifest.folder, self._store.mapped, memory)
        self.manifest = manifest  #: the contents of the folder
        self._limits = limits
        self._opened: dict[str, LoadedPlan] = {}

    @property
    def method_names(self) -> tuple[str, ...]:
        return tuple(self.manifest.methods)

    def show(self) -> Any:
        """Return its page for a notebook, which runs on the GPU of the reader's browser: `webpte.widget`."""
        return show_in_notebook(self.path)

    def shapes(self, name: str) -> list[list[tuple[int, ...]]]:
        """Return the calls that a method has schedules for, each by the dims of every input. Language models: none."""
        check_method_name(name, self.method_names)
        listed = self.manifest.data.get("shapes", {})
        calls = json_list(listed.get(name, []), "shapes") if isinstance(listed, dict) else []
        return [[json_ints(dims, "a dim") for dims in json_list(call, "the shapes of a call")] for call in calls]

    def open_file(self, file: BundledFile) -> MappedFile:
        """Return one of the files of the manifest, after a check of its hash. It is closed with the bundle."""
        if not isinstance(file, BundledFile):
            raise wrong_argument("file", "a file of the manifest", file)
        with self._locked():
            self._check_open()
            return self._store.checked(file)

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
        """Return a method that is ready to be called: `variant`, or the first one that this device can run.

        `slots` selects variants with this number of caches. With `lazy`, a kernel is compiled by the first call that
        uses it.
        """
        if rewrite is not None:
            raise already_planned(self.path, "rewrite")
        progress = cancellable(progress, cancel)
        if variant is not None and not isinstance(variant, BundleVariant):
            raise wrong_argument("variant", "a variant of the manifest, or None", variant)
        check_bool(lazy, "lazy")
        with self._locked():
            self._check_open()
            chosen = variant or self._choose(name, slots)
            return self._method_of((name, chosen.plan), lambda: self._play(self._read(chosen), progress, lazy))

    def plan(self, name: str = "forward", caps: Caps | None = None, rewrite: Rewrite | None = None) -> Plan:
        """Return how a method runs, on this machine's adapter or on a device of other capabilities."""
        if rewrite is not None:
            raise already_planned(self.path, "rewrite")
        with self._locked():
            self._check_open()
            return self._read(self._choose(name, None, caps)).scheduler.plan

    def _choose(self, name: str, slots: int | None, caps: Caps | None = None) -> BundleVariant:
        variants = self.manifest.methods[check_method_name(name, self.method_names)]
        check_caps(caps)
        if slots is not None:
            whole_number(slots, "slots", 1)
        matching = [variant for variant in variants if slots is None or variant.cache_slots == slots]
        if not matching:
            available = sorted({variant.cache_slots for variant in variants if variant.cache_slots is not None})
            raise InputError(
                argument="slots",
                expected=f"{f'one of {available}' if available else 'None'}, for which {name} is bundled",
                got=slots,
                code="unknown_slots",
            )
        return choose(matching, caps or adapter_caps().within(self._limits), f"{self.path}: {name}")

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

    def signature(self, name: str = "forward") -> str:
        variants = self.manifest.methods[check_method_name(name, self.method_names)]
        return f"{sanitize_line(name)}, planned for {len(variants)} devices"


def already_planned(folder: str, what: str) -> InputError:
    """Return the error for an operation, or options, that need a program's graph."""
    return InputError(
        f"{folder} is a bundle, which was planned when it was written; {what} needs a program",
        code="already_planned",
        hint="Load the .pte program.",
    )


def choose(variants: list[BundleVariant], caps: Caps, where: str) -> BundleVariant:
    """Return the first variant for the kind of device whose requirements the device meets."""
    rejected = []
    for variant in (variant for variant in variants if variant.device == caps.kind):
        missing = lacking(variant.features, variant.min_subgroup_size, variant.limits, caps)
        if not missing:
            return variant
        rejected.append(f"{variant}: {'; '.join(missing)}")
    raise DeviceError(
        f"{where} has no variant that {caps.adapter} can run. {'. '.join(rejected) or f'None is for a {caps.kind}'}.",
        code="no_variant",
    )


class _Store:
    """The files of a bundle. Each is mapped and verified once."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.mapped: list[MappedFile] = []
        self._known: dict[str, MappedFile] = {}

    def checked(self, entry: BundledFile) -> MappedFile:
        if entry.sha256 not in self._known:
            path = os.path.join(self._manifest.folder, *entry.path.split("/"))
            file = MappedFile(path)  # or FormatError, by its path
            self.mapped.append(file)
            if file.size != entry.nbytes or file.sha256() != entry.sha256:
                file.close()
                raise FormatError(
                    argument=path,
                    expected=f"{entry.nbytes} bytes with the hash {entry.sha256[:16]}...",
                    got=f"{file.size} bytes" + (" with another hash" if file.size == entry.nbytes else ""),
                    code="hash_mismatch",
                    hint="The file is damaged: copy or write the bundle again.",
                )
            self._known[entry.sha256] = file
        return self._known[entry.sha256]

    def by_hash(self, sha256: Any) -> MappedFile:
        return self.checked(self._manifest.file(sha256))


@dataclass(frozen=True)
class _VariantFiles:
    """The files of a variant, in the form of those of a saved plan: see plan.plan_reader."""

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
        """Return the text of a kernel, a range of the file that holds all of them."""
        offset, size = (
            json_int(at, "where a kernel's text is") for at in json_list(json_field(kernel, "text"), "text", 2)
        )
        return str(self.store.checked(self.variant.wgsl).view(offset, size), "ascii")

    def constants(self, name: str, size: int, sha256: Any) -> MappedFile:
        return self.store.by_hash(sha256)
