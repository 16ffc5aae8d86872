"""Kernel keys and the templater.

A key names everything that is compiled in: the template, its flags, the uniform block and the workgroup size.
Whatever is not in the key is a uniform, so equal keys share one pipeline.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..budgets import spend
from ..errors import GraphError
from ..version import __version__
from .parts import in_parts
from .texts import keep, recall

if TYPE_CHECKING:
    import jinja2

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIB = os.path.join(PACKAGE, "wgsl", "lib")
_HALVES = re.compile(r"\b(f16w|rounded_half|rounded_halves)\b")
SYM_SLOTS = 256  # 16 bytes each


@dataclass(frozen=True)
class Kernel:
    """The identity of a compute pipeline."""

    home: str  # whose template it is: a name that `home_of` gave to a folder
    template: str  # relative to that folder; of a saved one, its label
    flags: tuple[tuple[str, object], ...]
    params: str  # the struct that the uniform block holds, as Uniforms.wgsl
    workgroup: int
    reads: int  # storage bindings 0..reads-1 are read-only
    writes: int  # the following ones are read-write
    parts: tuple[int, ...] = ()  # bindings for each array of the template, where one is not enough for all,
    part_bytes: int = 0  # and what all but the last of them hold
    text: str | None = None  # of a plan that was saved: nothing is rendered

    @functools.cached_property
    def label(self) -> str:
        """A short name for error messages, profiles and GPU labels."""
        if self.text is not None:
            return self.template
        name = self.template.removesuffix(".wgsl").rpartition("/")[2]
        flags = ",".join(f"{k}={v}" for k, v in self.flags)
        return f"{name}[{flags}]" if flags else name

    @functools.cached_property
    def _hash(self) -> int:
        rendered = (self.home, self.template, self.flags, self.params, self.parts, self.text)
        return hash((*rendered, self.workgroup, self.reads, self.writes))

    def __hash__(self) -> int:
        return self._hash


_FOLDERS: dict[str, str] = {}  # home -> folder


@functools.cache
def home_of(folder: str) -> str:
    """A name for a folder of templates, which says nothing of where it lies. The same folder has the same name.

    All families of ours share one, so that any of them can run another's kernels.
    """
    if folder.startswith(PACKAGE + os.sep):
        name = os.path.relpath(folder, PACKAGE).split(os.sep)[0]
        folder = os.path.join(PACKAGE, name)
    else:  # of somebody's own ops
        name = f"{os.path.basename(folder)}#{sum('#' in home for home in _FOLDERS) + 1}"
    _FOLDERS[name] = folder
    return name


@functools.cache
def _environment(folder: str) -> jinja2.Environment:
    import jinja2  # a load whose kernels were all rendered before does not need it

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, LIB]),
        block_start_string="{$",
        block_end_string="$}",
        line_statement_prefix="$$",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _stamp(folder: str) -> str:
    """Changes with any template of a folder, and with the code that renders them.

    Ours do not change while a process runs; those of somebody who writes an op may, between two loads.
    """
    return _our_stamp(folder) if folder.startswith(PACKAGE) else _stamp_now(folder)


@functools.cache
def _our_stamp(folder: str) -> str:
    return _stamp_now(folder)


def _stamp_now(folder: str) -> str:
    paths = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".wgsl"))
    files = sorted((path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths)
    return f"{__version__} {os.stat(__file__).st_mtime_ns} {files}"


@functools.cache
def _library(name: str) -> str:
    with open(os.path.join(LIB, name), encoding="ascii") as file:
        return file.read()


def _with_halves(text: str) -> str:
    """Halves in words: elements are f32, and what is converted to one, as a store to f16 must be, is rounded."""
    text = re.sub(r"\bf16w\b(?! *\()", "f32", text)
    return re.sub(r"\bf16w *\(", "rounded_half(", text) + "\n" + _library("halves.wgsl")


def render(kernel: Kernel, naga: bool = True) -> str:
    """The WGSL text of a kernel. Deterministic: a function of the key and the template files.

    naga, which wgpu uses, offers subgroups without being asked and refuses to be asked; other compilers insist on it.
    """
    text = kernel.text if kernel.text is not None else _recalled(kernel)
    return text if naga or not uses_subgroups(text) else f"enable subgroups;\n{text}"


def uses_subgroups(text: str) -> bool:
    """Whether a kernel shares values within subgroups."""
    return "subgroup_invocation_id" in text


def _recalled(kernel: Kernel) -> str:
    folder = _FOLDERS[kernel.home]
    key = (_stamp(folder), _stamp(LIB), folder, kernel.template, kernel.flags, kernel.params)
    split = (kernel.parts, kernel.part_bytes)
    name = hashlib.sha256(repr((*key, kernel.workgroup, SYM_SLOTS, split)).encode()).hexdigest()
    text = recall(name)
    if text is None:
        text = _rendered(kernel, folder)
        keep(name, text)
    return text


def _rendered(kernel: Kernel, folder: str) -> str:
    import jinja2

    flags = dict(kernel.flags)
    try:
        template = _environment(folder).get_template(kernel.template)
        text = template.render(
            **flags,
            params=kernel.params,
            workgroup=kernel.workgroup,
            uses_f16="f16" in flags.values(),
            sym_slots=SYM_SLOTS,
        )
    except jinja2.TemplateError as error:
        raise GraphError(
            f"kernel {kernel.label}: template {kernel.template} failed: {error}", code="template_failed"
        ) from error
    spend("kernel text", len(text), f"kernel {kernel.template}")
    text = _with_halves(text) if _HALVES.search(text) else text
    return in_parts(text, kernel.parts, kernel.part_bytes, kernel.label) if kernel.parts else text
