"""The manifest of a bundle: the contents of a folder that `webpte bundle` wrote.

The manifest contains its own hash and those of all other files, so damage is detected before anything is used. A bundle
may be hostile all the same: file names are derived from hashes, so no path leads out of the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..budgets import spend
from ..container import MappedFile
from ..errors import Error, FormatError
from ..plan.value_json import check_format, json_bool, json_field, json_int, json_ints, json_list, json_str
from ..wgsl import BROWSER_LIMITS

FORMAT, VERSION = "webpte bundle", 2
MANIFEST = "manifest.json"
VISION_ENCODER = "vision_encoder"  # the method of a language model that reads images
KINDS = ("language", "encoder", "image", "program", "check")
SUFFIXES = {"plan": "json", "json": "json", "wgsl": "wgsl", "weights": "bin", "text": "txt"}  # by type of file
_HEADER = re.compile(rb'\{"sha256":"([0-9a-f]{64})",')  # the hash is of everything after it
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_SLOTS = 4096
_MAX_TEMPLATE_CHARS = 1 << 18  # characters


@dataclass(frozen=True)
class BundledFile:
    """A file of a bundle, identified by its hash."""

    sha256: str
    nbytes: int
    path: str  # in the folder


@dataclass(frozen=True)
class BundleVariant:
    """A plan of a method for a kind of device."""

    plan: BundledFile
    wgsl: BundledFile
    weights: tuple[BundledFile, ...]
    device: str  # "gpu" or "cpu"
    features: tuple[str, ...]
    min_subgroup_size: int
    limits: Mapping[str, int]
    cache_slots: int | None  # sequences of a language model that it has caches for

    def __str__(self) -> str:
        named = {"subgroup": f"subgroups of {self.min_subgroup_size}"}
        needs = [named.get(feature, feature) for feature in self.features]
        slots = "" if self.cache_slots is None else f", {self.cache_slots} sequence{'s' * (self.cache_slots > 1)}"
        return f"{self.device}{slots}{', ' if needs else ''}{', '.join(needs)}"


@dataclass(frozen=True)
class Language:
    """The metadata of a language model."""

    tokenizer: BundledFile
    tokenizer_config: BundledFile | None
    chat_template: str | None
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    context_length: int
    prefill_rows: tuple[int, ...]  # tokens per prefill step, ascending
    decode_rows: tuple[int, ...]  # tokens per decode step, each of which is sampled
    sampling_words: Mapping[int, int]  # by decode rows: words of the sampling inputs
    sampling: Mapping[str, Any] | None  # defaults of the settings of answers; None in older bundles
    context_limit: Mapping[str, Any] | None = None  # why the context is not longer; None in older bundles
    state_reach: tuple[int, int] | None = None  # of slots that do not keep every position: needed and held positions
    image_processor: BundledFile | None = None  # preprocessor_config.json; None if the model reads no images
    rope_axes: bool = False  # `forward` takes the positions of each row along three axes
    bidirectional: bool = False  # `forward` takes how many later rows each row sees: those of its image


@dataclass(frozen=True)
class Manifest:
    folder: str
    name: str
    kind: str
    files: Mapping[str, BundledFile]
    methods: Mapping[str, tuple[BundleVariant, ...]]
    language: Language | None
    data: Mapping[str, Any]  # the whole document, of which the rest is for pages

    def file(self, sha256: object) -> BundledFile:
        """Return the file with a hash. Raise FormatError if the bundle has none."""
        return _file_of(self.files, sha256)


def file_path(sha256: str, kind: str) -> str:
    """Return the path of a file in the folder."""
    return f"files/{sha256}.{SUFFIXES[kind]}"


def is_bundle(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(os.path.join(path, MANIFEST))


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    path = os.path.join(folder, MANIFEST)
    with MappedFile(path) as file:
        spend("plan bytes", file.size, path)
        contents = bytes(file.view(0, file.size))
    try:
        return _ManifestReader(os.fspath(folder), _document(path, contents)).manifest()
    except FormatError as error:
        if error.argument == path:
            raise
        raise FormatError(f"{path}: {error}", code=error.reason) from error
    except Error:
        raise
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: not a valid manifest: {type(error).__name__}: {str(error)[:200]}", code="damaged"
        ) from error


def _document(path: str, contents: bytes) -> dict[str, Any]:
    opening = _HEADER.match(contents)
    if opening is None:
        raise FormatError('expected a manifest that begins with {"sha256": ...} of the rest', code="bad_magic")
    digest = hashlib.sha256(contents[opening.end() :]).hexdigest()
    if digest != opening[1].decode():
        raise FormatError(
            f"the manifest is damaged: expected the hash {opening[1].decode()[:16]}..., got {digest[:16]}...",
            code="hash_mismatch",
        )
    data = json.loads(contents.decode("ascii"))
    check_format(path, data, FORMAT, VERSION, "webpte bundle MODEL.pte -o DIR")
    return dict(data)


class _ManifestReader:
    def __init__(self, folder: str, data: dict[str, Any]) -> None:
        self.folder = folder
        self.data = data
        self.files = {sha256: self._entry(sha256, item) for sha256, item in _object(data, "files").items()}

    def manifest(self) -> Manifest:
        kind = json_field(self.data, "kind")
        if kind not in KINDS:
            raise FormatError(
                argument="kind", expected=f"one of {', '.join(KINDS)}", got=ascii(kind)[:40], code="unknown_kind"
            )
        methods = {
            json_str(name, "the name of a method"): tuple(
                self._variant(item) for item in json_list(json_field(method, "variants"), "variants")
            )
            for name, method in _object(self.data, "methods").items()
        }
        if kind == "language" and "forward" not in methods:
            raise FormatError("a language model must have a method forward", code="missing_method")
        language = self._language(json_field(self.data, "language")) if kind == "language" else None
        if language is not None and language.image_processor is not None and VISION_ENCODER not in methods:
            raise FormatError(f"expected a method {VISION_ENCODER}, which images require", code="missing_method")
        return Manifest(
            folder=self.folder,
            name=json_str(json_field(self.data, "name"), "name"),
            kind=kind,
            files=self.files,
            methods=methods,
            language=language,
            data=self.data,
        )

    def _entry(self, sha256: str, item: Any) -> BundledFile:
        nbytes = json_int(json_field(item, "bytes"), "the size of a file", 1)
        path, kind = json_field(item, "path"), json_field(item, "type")
        if not _DIGEST.fullmatch(sha256) or kind not in SUFFIXES:
            raise FormatError(
                argument="files",
                expected=f"SHA-256 hashes and the types {', '.join(SUFFIXES)}",
                got=f"{ascii(sha256)[:80]} of type {ascii(kind)[:20]}",
                code="file_name",
            )
        if path != file_path(sha256, kind):
            expected, got = file_path(sha256, kind), ascii(path)[:100]
            raise FormatError(argument="files", expected=f"the path {expected}", got=got, code="file_name")
        return BundledFile(sha256, nbytes, path)

    def _file(self, sha256: object) -> BundledFile:
        return _file_of(self.files, sha256)

    def _optional_file(self, sha256: Any) -> BundledFile | None:
        return None if sha256 is None else self._file(sha256)

    def _variant(self, item: Any) -> BundleVariant:
        slots = json_field(item, "cache_slots")
        device = json_field(item, "device")
        if device not in ("gpu", "cpu"):
            raise FormatError(
                argument="device", expected="'gpu' or 'cpu'", got=ascii(device)[:40], code="unknown_device"
            )
        return BundleVariant(
            plan=self._file(json_field(item, "plan")),
            wgsl=self._file(json_field(item, "wgsl")),
            weights=tuple(self._file(shard) for shard in json_list(json_field(item, "weights"), "weights")),
            device=device,
            features=tuple(
                json_str(name, "a feature", 100) for name in json_list(json_field(item, "features"), "features")
            ),
            min_subgroup_size=json_int(json_field(item, "min_subgroup_size"), "min_subgroup_size", high=1 << 16),
            limits={_limit(name): json_int(most, name) for name, most in _object(item, "limits").items()},
            cache_slots=None if slots is None else json_int(slots, "cache_slots", 1, _MAX_SLOTS),
        )

    def _language(self, item: Any) -> Language:
        template, bos = json_field(item, "chat_template"), json_field(item, "bos_token_id")
        if template is not None and (not isinstance(template, str) or len(template) > _MAX_TEMPLATE_CHARS):
            raise FormatError(
                argument="chat_template",
                expected=f"a string of at most {_MAX_TEMPLATE_CHARS} characters",
                got=f"{len(template)} characters" if isinstance(template, str) else ascii(template)[:60],
                code="invalid_field",
            )
        prefill, decode = (_ascending(json_field(item, name), name) for name in ("prefill_rows", "decode_rows"))
        words = {int(rows): json_int(most, "sampling_words") for rows, most in _object(item, "sampling_words").items()}
        if decode[0] != 1 or words.keys() != set(decode):
            raise FormatError(
                argument="decode_rows",
                expected=f"1 and the rows of sampling_words, {sorted(words)}",
                got=list(decode),
                code="invalid_field",
            )
        images = item.get("images") or {}
        return Language(
            tokenizer=self._file(json_field(item, "tokenizer")),
            tokenizer_config=self._optional_file(json_field(item, "tokenizer_config")),
            chat_template=template,
            eos_token_ids=json_ints(json_field(item, "eos_token_ids"), "an end-of-text token"),
            bos_token_id=None if bos is None else json_int(bos, "bos_token_id"),
            context_length=json_int(json_field(item, "context_length"), "context_length", 1),
            prefill_rows=prefill,
            decode_rows=decode,
            sampling_words=words,
            sampling=_object(item, "sampling") if "sampling" in item else None,
            context_limit=_object(item, "context_limit") if "context_limit" in item else None,
            state_reach=_reach(item["state_reach"]) if item.get("state_reach") is not None else None,
            image_processor=self._file(json_field(images, "config")) if images else None,
            rope_axes=json_bool(images.get("rope_axes", False), "rope_axes"),
            bidirectional=json_bool(images.get("bidirectional", False), "bidirectional"),
        )


def _file_of(files: Mapping[str, BundledFile], sha256: object) -> BundledFile:
    if not isinstance(sha256, str) or sha256 not in files:
        raise FormatError(f"{ascii(sha256)[:80]}: not a file of the bundle", code="unknown_file")
    return files[sha256]


def _object(data: Any, name: str) -> Mapping[str, Any]:
    value = json_field(data, name)
    if not isinstance(value, dict):
        raise FormatError(argument=name, expected="an object", got=ascii(value)[:60], code="invalid_field")
    return value


def _limit(name: str) -> str:
    if name not in BROWSER_LIMITS:
        raise FormatError(f"{ascii(name)[:60]}: not a limit of devices", code="unknown_limit")
    return name


def _ascending(data: Any, what: str) -> tuple[int, ...]:
    numbers = json_ints(data, what, 1)
    if not numbers or list(numbers) != sorted(set(numbers)):
        raise FormatError(
            argument=what, expected="integers in ascending order", got=ascii(data)[:60], code="invalid_field"
        )
    return numbers


def _reach(data: Any) -> tuple[int, int]:
    needed, held = json_ints(json_list(data, "state_reach", 2), "state_reach")
    if held < needed:
        raise FormatError(
            argument="state_reach", expected=f"at least {needed} held positions", got=held, code="invalid_field"
        )
    return needed, held
