"""Recognize files that are not programs, such as other models and failed downloads, and what to do with each."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import FormatError
from .files import MappedFile, export_line

REEXPORT = "Export the PyTorch model it was made from: webpte.export.lower(model, inputs, path='model.pte')."
RETRY = "Download or copy it again."
MODEL_FILES = (
    "Pass a .pte file. Commands of language models also take a checkpoint: model.gguf, or a folder with config.json "
    "and safetensors."
)
_HEAD_BYTES = 4096  # enough to recognize most kinds
_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_ONNX = re.compile(rb"\x08[\x01-\x20](?:\x12[\x01-\x40][ -~]{1,64}|:|B)", re.DOTALL)


class ForeignFile(NamedTuple):
    """A file or folder of another kind than expected."""

    kind: str  # "a GGUF checkpoint"
    remedy: str  # a sentence, with a command where one helps


def recognize(file: MappedFile) -> ForeignFile | None:
    """Return the kind of a file by its bytes; None if unknown."""
    start = bytes(file.view(0, min(file.size, _HEAD_BYTES)))
    return _by_bytes(start, file) or _by_text(start)


def wrong_file_error(file: MappedFile, expected: str, mark: str) -> FormatError:
    """Return the error for a file without the `mark` of the expected kind: its kind, and what to do."""
    actual = recognize(file)
    if actual is not None:
        return FormatError(
            argument=file.path, expected=expected, got=actual.kind, code="wrong_file_type", hint=actual.remedy
        )
    start = bytes(file.view(0, min(file.size, 16)))
    guess = _by_name(file.path)
    hint = f"It may be {guess.kind}. {guess.remedy}" if guess is not None else RETRY
    return FormatError(f"not {expected}: {mark}, got {start!r}", argument=file.path, code="bad_magic", hint=hint)


def _by_bytes(start: bytes, file: MappedFile) -> ForeignFile | None:
    path = file.path
    marks: Sequence[tuple[bool, str, str]] = (
        (start[:4] == b"GGUF", "a GGUF checkpoint", f"Export it: {export_line(path)}."),
        (start[4:6] == b"FT" and start[8:12] == b"FH01", "a .ptd file with constants of a program",
         f"Pass the program, and this as its data: --data {path}, or webpte.load('model.pte', data=[{path!r}])."),
        (start[4:6] == b"ET", "an ExecuTorch program (.pte)", "Pass the program first, and data after --data."),
        (start[4:8] == b"TFL3", "a TensorFlow Lite model", REEXPORT),
        (start.startswith(_LEGACY_TORCH), "weights saved by torch.save", _torch_remedy(path)),
        (start[:4] == b"PK\x03\x04", *_archive(file)),
        (start[:2] == b"\x1f\x8b", "a gzip archive", "Unpack it first: gunzip."),
        (start[:4] == b"\x28\xb5\x2f\xfd", "a zstd archive", "Unpack it first: unzstd."),
        (start[257:262] == b"ustar", "a tar archive", "Unpack it first: tar -xf."),
        (_is_safetensors(start), "a file of safetensors",
         f"Export its folder, with config.json and tokenizer.json in it: {export_line(_folder(path))}."),
        (_ONNX.match(start) is not None, "an ONNX model", REEXPORT),
        (not any(start), f"a file of zeros in its first {len(start)} bytes", RETRY),
    )  # fmt: skip
    return next((ForeignFile(kind, remedy) for matches, kind, remedy in marks if matches), None)


def _folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _is_safetensors(start: bytes) -> bool:
    """Return whether the file starts with a length and a JSON object."""
    return len(start) > 10 and start[8:10] in (b'{"', b"{}") and int.from_bytes(start[:8], "little") < 1 << 28


def _archive(file: MappedFile) -> tuple[str, str]:
    end = bytes(file.view(max(0, file.size - (1 << 16)), min(file.size, 1 << 16)))  # a zip's table of contents
    if b"/data.pkl" in end or b"archive_format" in end or b"/version" in end:
        return "an archive of PyTorch (torch.save or torch.export)", _torch_remedy(file.path)
    return "a zip archive", "Unpack it first, or pass a .pte file."


def _torch_remedy(path: str) -> str:
    return (
        f"Load {path} in PyTorch and export the module: webpte.export.lower(model, inputs, path='model.pte'). "
        "Language models are read from safetensors and GGUF files."
    )


def _by_text(start: bytes) -> ForeignFile | None:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:200].lower()
    if text.startswith(b"version https://git-lfs"):
        return ForeignFile("a Git LFS pointer instead of the file", "Fetch it: git lfs pull.")
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return ForeignFile("a web page", f"The download returned a page, perhaps a login or an error. {RETRY}")
    if text.startswith((b"{", b"[")) and not text.startswith(b"{\x00"):
        return ForeignFile("JSON text", f"{MODEL_FILES} If a download returned an error, repeat it.")
    if len(text) >= 16 and all(byte >= 32 or byte in b"\t\n\r" for byte in text):
        return ForeignFile("a text file", MODEL_FILES)
    return None


def _by_name(path: str) -> ForeignFile | None:
    """Return the kind of a file by its suffix, for kinds without magic bytes."""
    suffix = os.path.splitext(path)[1].lower()
    kinds = {
        ".onnx": ("an ONNX model", REEXPORT),
        ".mlmodel": ("a Core ML model", REEXPORT),
        ".gguf": ("a damaged GGUF checkpoint", RETRY),
        ".safetensors": ("a damaged file of safetensors", RETRY),
        ".pt": ("a PyTorch file", _torch_remedy(path)),
        ".pth": ("a PyTorch file", _torch_remedy(path)),
        ".bin": ("a file of weights", _torch_remedy(path)),
        ".ptd": ("a damaged .ptd file", RETRY),
        ".npy": ("a NumPy array", "Pass a .pte file first, and arrays with --input."),
    }
    return ForeignFile(*kinds[suffix]) if suffix in kinds else None
