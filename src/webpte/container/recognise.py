"""What a file is that is no program: models of other kinds, downloads that went wrong; and what to do with each."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import FormatError
from .files import MappedFile
from .near import export_line

REEXPORT = "Export the PyTorch model it was made from: webpte.export.lower(model, inputs, path='model.pte')."
AGAIN = "Download or copy it again."
_START = 4096  # bytes that tell most kinds apart
_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_ONNX = re.compile(rb"\x08[\x01-\x20](?:\x12[\x01-\x40][ -~]{1,64}|:|B)", re.DOTALL)


class Other(NamedTuple):
    """A file or folder that is something else than was wanted."""

    kind: str  # "a GGUF checkpoint"
    remedy: str  # a sentence, with a command where one helps


def recognise(file: MappedFile) -> Other | None:
    """What a file's bytes say that it is; None for what nobody knows."""
    start = bytes(file.view(0, min(file.size, _START)))
    return _by_bytes(start, file) or _by_text(start)


def refusal(file: MappedFile, wanted: str, mark: str) -> FormatError:
    """The error for a file that has not the `mark` of what is wanted: what it is instead, and what to do."""
    found = recognise(file)
    if found is not None:
        return FormatError(f"{file.path}: is {found.kind}, not {wanted}. {found.remedy}", code="wrong_file_type")
    start = bytes(file.view(0, min(file.size, 16)))
    named = _by_name(file.path)
    advice = f"; it may be {named.kind}. {named.remedy}" if named is not None else f". {AGAIN}"
    return FormatError(f"{file.path}: not {wanted}: {mark} of {start!r}{advice}", code="bad_magic")


def _by_bytes(start: bytes, file: MappedFile) -> Other | None:
    path = file.path
    marks: Sequence[tuple[bool, str, str]] = (
        (start[:4] == b"GGUF", "a GGUF checkpoint", f"Make a program of it: {export_line(path)}."),
        (start[4:6] == b"FT" and start[8:12] == b"FH01", "a .ptd file with constants of a program",
         f"Name the program, and this as its data: --data {path}, or webpte.load('model.pte', data=[{path!r}])."),
        (start[4:6] == b"ET", "an ExecuTorch program (.pte)", "Programs are named first, data after --data."),
        (start[4:8] == b"TFL3", "a TensorFlow Lite model", REEXPORT),
        (start.startswith(_LEGACY_TORCH), "weights saved by torch.save", _torch_remedy(path)),
        (start[:4] == b"PK\x03\x04", *_archive(file)),
        (start[:2] == b"\x1f\x8b", "packed by gzip", "Unpack it first: gunzip."),
        (start[:4] == b"\x28\xb5\x2f\xfd", "packed by zstd", "Unpack it first: unzstd."),
        (start[257:262] == b"ustar", "a tar archive", "Unpack it first: tar -xf."),
        (_is_safetensors(start), "a file of safetensors",
         f"Make a program of its folder, with config.json and tokenizer.json in it: {export_line(_folder(path))}."),
        (_ONNX.match(start) is not None, "an ONNX model", REEXPORT),
        (not any(start), f"nothing but zeros in its first {len(start)} bytes", AGAIN),
    )  # fmt: skip
    return next((Other(kind, remedy) for matches, kind, remedy in marks if matches), None)


def _folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _is_safetensors(start: bytes) -> bool:
    """A length, then a JSON object of that length."""
    return len(start) > 10 and start[8:10] in (b'{"', b"{}") and int.from_bytes(start[:8], "little") < 1 << 28


def _archive(file: MappedFile) -> tuple[str, str]:
    end = bytes(file.view(max(0, file.size - (1 << 16)), min(file.size, 1 << 16)))  # a zip's table of contents
    if b"/data.pkl" in end or b"archive_format" in end or b"/version" in end:
        return "an archive of PyTorch (torch.save or torch.export)", _torch_remedy(file.path)
    return "a zip archive", "Unpack it first, or name a .pte file."


def _torch_remedy(path: str) -> str:
    return (
        f"Load {path} in PyTorch and export the module: webpte.export.lower(model, inputs, path='model.pte'). "
        "A Llama's weights with config.json are exported by webpte export."
    )


def _by_text(start: bytes) -> Other | None:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:200].lower()
    if text.startswith(b"version https://git-lfs"):
        return Other("a pointer of Git LFS, not the file itself", "Fetch it: git lfs pull.")
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return Other("a web page", f"The download gave a page, perhaps of a login or an error. {AGAIN}")
    if text.startswith((b"{", b"[")) and not text.startswith(b"{\x00"):
        return Other("JSON text", "A .pte file is wanted; where a download gave an error instead, repeat it.")
    return None


def _by_name(path: str) -> Other | None:
    """Kinds without a mark of their own. A program of that name would have been known by its bytes."""
    suffix = os.path.splitext(path)[1].lower()
    kinds = {
        ".onnx": ("an ONNX model", REEXPORT),
        ".mlmodel": ("a Core ML model", REEXPORT),
        ".gguf": ("a damaged GGUF checkpoint", AGAIN),
        ".safetensors": ("a damaged file of safetensors", AGAIN),
        ".pt": ("a PyTorch file", _torch_remedy(path)),
        ".pth": ("a PyTorch file", _torch_remedy(path)),
        ".bin": ("a file of weights", _torch_remedy(path)),
        ".ptd": ("a damaged .ptd file", AGAIN),
        ".npy": ("a NumPy array", "Name a .pte file first; arrays are given by --input."),
    }
    return Other(*kinds[suffix]) if suffix in kinds else None
