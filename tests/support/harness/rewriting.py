"""Read a program and write it again with the package's own writer."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.export.archive import ARCHIVE
from tests.support.harness.container_samples import read_all
from webpte import container as c


def rewritten(data: bytes) -> bytes:
    """Return the same program with the graphs of its Vulkan delegates read and written again."""
    program = c.parse_program(c.MappedFile.from_bytes("sample.pte", data))
    methods = (replace(m, delegates=tuple(map(_delegate, m.delegates))) for m in program.methods)
    return written(replace(program, methods=tuple(methods)))


def written(program: c.ProgramFile) -> bytes:
    file = io.BytesIO()
    c.write_program(file, program)
    return file.getvalue()


def rewritten_tensors(data: bytes) -> bytes:
    file = io.BytesIO()
    c.write_tensors(file, c.parse_tensors(c.MappedFile.from_bytes("sample.ptd", data)))
    return file.getvalue()


def contents(data: bytes) -> Any:
    """Return what `read_all` returns, without the bytes of Vulkan blobs: their graphs are in it."""
    program, *graphs = read_all(data)
    for method in program[1]["methods"]:
        for _, delegate in method[1]["delegates"]:
            if delegate["backend"] == "VulkanBackend":
                delegate["blob"] = None
    return repr((program, graphs))  # NaN is equal to itself only as text


def archived(suffix: str) -> Iterator[tuple[str, bytes]]:
    """Yield the exported programs or tensor files that are committed."""
    for archive in sorted(ARCHIVE.glob("*.zip")):
        with zipfile.ZipFile(archive) as file:
            for name in file.namelist():
                if name.endswith(suffix):
                    yield f"{archive.name}/{name}", file.read(name)


def _delegate(delegate: c.Delegate) -> c.Delegate:
    if delegate.backend != "VulkanBackend":
        return delegate
    return replace(delegate, blob=c.Span.of("blob", c.vulkan_blob(c.parse_vulkan(delegate.blob))))
