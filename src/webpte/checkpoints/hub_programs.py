"""The programs in a repository of a hub: which of their variants runs best here, and the files that belong to it.

A repository often has one model for several backends, in folders or by names such as `model_xnnpack_int8.pte`. The
delegates of a program are in its header, which is read by ranges, so that one variant is downloaded and no other.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..container import MappedFile, parse_program
from ..errors import Error, HubError, InputError, UnsupportedError
from ..graph.method import BACKEND, OTHER_BACKENDS
from ..graph.xnnpack import XNN_BACKEND
from ..partial_files import atomic_file
from ..text import plural, size
from .hub_files import CachedRepository, HubFile, hub_errors
from .hub_listing import HubName, list_files
from .ranged import RangedFile

TITLES = {BACKEND: "Vulkan", XNN_BACKEND: "XNNPACK"}  # the delegates of WebGPU have the backend of Vulkan
# Words in a path that name a variant of a model, not a model.
_OWN_WORDS = {"vulkan": BACKEND, "webgpu": BACKEND, "xnnpack": XNN_BACKEND}
_OTHER_WORDS = {name.removesuffix("Backend").lower(): name for name in OTHER_BACKENDS} | {"mtk": "NeuropilotBackend"}
_PRECISIONS = re.compile(
    r"b?f(p|loat)?(16|32)|u?int[48]|[48]da?[48]?w|q[48]|(4|8)bits?|quant(ized)?|spinquant|q?lora|qat|ptq|original|portable"
)
# Files that belong to a program: in its folder, or above it.
_BESIDE = {
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"),
    *("tokenizer.model", "tokenizer.bin", "vocab.json", "vocab.txt", "merges.txt"),
}
_STEM_SUFFIXES = (".json", ".jinja", ".txt")  # of model.task.json and others that begin as the program
_MAX_LISTED = 24


@dataclass(frozen=True)
class ProgramVariant:
    """A .pte file of a repository."""

    file: HubFile
    backends: frozenset[str]  # of its delegates; empty for a program of portable kernels

    @property
    def rank(self) -> int | None:
        """Return the place among the variants, the best first; None if webpte cannot run it."""
        order = [{BACKEND}, {BACKEND, XNN_BACKEND}, {XNN_BACKEND}, set[str]()]
        return order.index(set(self.backends)) if self.backends <= TITLES.keys() else None

    @property
    def title(self) -> str:
        """Return the backends, such as "Vulkan and XNNPACK"."""
        names = [TITLES.get(name) or OTHER_BACKENDS.get(name, name) for name in sorted(self.backends, reverse=True)]
        return " and ".join(names) or "no delegate"


class HubPrograms:
    """The programs of a revision."""

    def __init__(self, name: HubName) -> None:
        self.name = name
        with self.errors():
            self._listing = list_files(name)
        self.place = CachedRepository(name.repository, self._listing.commit)
        self._files = [file for file in self._listing.files.values() if file.name.endswith(".pte")]
        self._compared = 0

    def full_name(self, variant: ProgramVariant) -> str:
        revision = "" if self.name.revision == "main" else f"@{self.name.revision}"
        return f"hf:{self.name.repository}/{variant.file.name}{revision}"

    def describe(self, variant: ProgramVariant) -> str:
        """Return which variant was chosen; an empty string if there was one only."""
        if self._compared < 2:
            return ""
        text = f"{variant.file.name} ({variant.title}, {size(variant.file.size)})"
        return f"{text} of {plural(self._compared, 'variant')}"

    def choose(self) -> ProgramVariant | None:
        """Return the program that the name has, or the best variant of the only model. None without a .pte file."""
        if self.name.file is not None:
            file = self._listing.file(self.name, self.name.file)
            return ProgramVariant(file, _backends_by_name(file.name))
        if not self._files:
            return None
        others = [file for file in self._files if _backends_by_name(file.name) & OTHER_BACKENDS.keys()]
        models = defaultdict(list)
        for file in self._files:
            if file not in others:
                models[_model_of(file.name)].append(file)
        if len(models) > 1:
            raise self._ambiguous([file for files in models.values() for file in files])
        variants = [ProgramVariant(file, self._backends(file)) for files in models.values() for file in files]
        self._compared = len(self._files)
        if able := [variant for variant in variants if variant.rank is not None]:
            return min(able, key=lambda variant: (variant.rank, variant.file.size, variant.file.name))
        if any(file.endswith((".safetensors", ".gguf")) for file in self._listing.files):
            return None  # the checkpoint is built instead
        raise self._no_variant([*variants, *(ProgramVariant(file, _backends_by_name(file.name)) for file in others)])

    # ------------------------------------------------------------ files

    def open(self, file: HubFile) -> MappedFile:
        """Return a file of the cache, or else one whose views download their ranges."""
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        path = self.place.snapshot / file.name
        if path.exists():
            return MappedFile(path)
        if constants.is_offline_mode():
            raise HubError(
                f"{self.place.repository}: {file.name} is not in the cache, and HF_HUB_OFFLINE is set", "offline"
            )
        url = hf_hub_url(self.place.repository, file.name, revision=self.place.commit, endpoint=constants.ENDPOINT)
        name = f"hf:{self.place.repository}/{file.name}"
        return RangedFile(name, url, file.size, build_hf_headers(), self.errors).open()

    def errors(self) -> AbstractContextManager[None]:
        """Return a context that converts the errors of the hub's library."""
        return hub_errors(self.name.repository, self.name.revision)

    def companions(self, variant: ProgramVariant) -> list[HubFile]:
        """Return the small files that belong to a program: tokenizer, chat template, configuration."""
        path = PurePosixPath(variant.file.name)
        folders = {path.parent, *path.parent.parents}
        return [
            file
            for file in self._listing.files.values()
            if (one := PurePosixPath(file.name)).parent in folders
            and (one.name in _BESIDE or (_has_stem(one, path) and one.suffix in _STEM_SUFFIXES))
        ]

    def data(self, variant: ProgramVariant) -> list[HubFile]:
        """Return the .ptd files of a program: those that begin as it does, or else all in its folder."""
        path = PurePosixPath(variant.file.name)
        files = [
            file
            for file in self._listing.files.values()
            if file.name.endswith(".ptd") and PurePosixPath(file.name).parent == path.parent
        ]
        return [file for file in files if _has_stem(PurePosixPath(file.name), path)] or files

    def _backends(self, file: HubFile) -> frozenset[str]:
        """Return the backends of a program: from its header, which is read once, or else by its name."""
        record = self.place.metadata / f"{file.hash}.backends.json"
        try:
            return frozenset(str(name) for name in json.loads(record.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            pass
        try:
            with self.open(file) as opened:
                program = parse_program(opened)
        except (Error, OSError) as error:
            if isinstance(error, HubError) and error.reason != "ranges":
                raise
            return _backends_by_name(file.name)
        names = {delegate.backend for method in program.methods for delegate in method.delegates}
        self.place.create()
        with atomic_file(record) as temporary:
            Path(temporary).write_text(json.dumps(sorted(names)), encoding="utf-8")
        return frozenset(names)

    # ------------------------------------------------------------ errors

    def _ambiguous(self, files: list[HubFile]) -> InputError:
        lines = self._lines([ProgramVariant(file, _backends_by_name(file.name)) for file in files])
        return InputError(
            f"{self.name.repository} has programs of several models; choose one of them:\n{lines}",
            code="ambiguous_file",
        )

    def _no_variant(self, variants: list[ProgramVariant]) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name.repository} has no program for Vulkan, WebGPU or XNNPACK:\n{self._lines(variants)}",
            [variant.file.name for variant in variants],
            code="other_backend",
            hint="Export the model for one of these: webpte.export.lower, or webpte export with its checkpoint.",
        )

    def _lines(self, variants: list[ProgramVariant]) -> str:
        ordered = sorted(variants, key=lambda variant: (variant.rank is None, variant.rank, variant.file.name))
        lines = [
            f"  {self.full_name(variant)}  {size(variant.file.size)}{f', {variant.title}' if variant.backends else ''}"
            for variant in ordered[:_MAX_LISTED]
        ]
        more = len(ordered) - len(lines)
        return "\n".join([*lines, *([f"  and {more} more"] if more else [])])


def _words(path: str) -> list[str]:
    return re.split(r"[/_\-. ]+", path.removesuffix(".pte").lower())


def _backends_by_name(path: str) -> frozenset[str]:
    """Return the backends that the words of a path name; none if no word does."""
    known = _OWN_WORDS | _OTHER_WORDS
    return frozenset(known[word] for word in _words(path) if word in known)


def _model_of(path: str) -> tuple[str, ...]:
    """Return the words of a path without those that name a variant."""
    variants = _OWN_WORDS.keys() | _OTHER_WORDS.keys()
    return tuple(word for word in _words(path) if word not in variants and not _PRECISIONS.fullmatch(word))


def _has_stem(path: PurePosixPath, program: PurePosixPath) -> bool:
    """Return whether a file is in the folder of a program and begins as it does, such as model.task.json."""
    return path.parent == program.parent and path.name.startswith(f"{program.stem}.")
