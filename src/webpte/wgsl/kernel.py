"""Kernel keys, and the rendering of their WGSL texts.

A key contains everything that is compiled in: the template, its flags, the uniform block and the workgroup size. All
else is a uniform, so equal keys share one pipeline.

Rendered texts are cached in the user's cache folder, because rendering takes half of a warm load. A file holds the hash
of its text and the text: a truncated or damaged file is rendered again. Files of other owners, and folders that others
may write to, are not read.
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
from ..partial_files import atomic_file
from ..version import __version__
from .arrays import declare, split
from .caps import matrix_feature

if TYPE_CHECKING:
    import jinja2
import contextlib
import stat
from pathlib import Path

from ..budgets import limit
from ..folders import kernel_texts_folder

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIB = os.path.join(PACKAGE, "wgsl", "lib")
_RENDERERS = [os.path.join(PACKAGE, "wgsl", name) for name in ("kernel.py", "arrays.py", "flags.py")]
RENDERED = frozenset({"params", "workgroup", "sym_slots"})  # names that templates read besides their flags
_HALF = re.compile(r"^(?:[^/\n]|/(?!/))*\bf16\b", re.MULTILINE)  # outside of comments
_HALF_ENABLED = "enable f16;\n"
_MATRICES_ENABLED = (
    # Whether all invocations of a subgroup take a branch cannot be proven by their indices.
    "enable chromium_experimental_subgroup_matrix;\ndiagnostic(off, chromium.subgroup_matrix_uniformity);\n"
)
_MATRICES = re.compile(r"subgroup_matrix_left<f16, (\d+), (\d+)>.*subgroup_matrix_result<f32, (\d+)", re.DOTALL)
_HALVES = re.compile(r"\b(f16w|rounded_half|rounded_halves)\b")
SYM_SLOTS = 256  # 16 bytes each


@dataclass(frozen=True)
class Kernel:
    """The identity of a compute pipeline."""

    home: str  # the name of the template's folder, from `home_of`
    template: str  # relative to that folder; the label of a saved kernel
    flags: tuple[tuple[str, object], ...]
    params: str  # the struct that the uniform block holds, as Uniforms.wgsl
    workgroup: int
    reads: int  # storage bindings 0..reads-1 are read-only
    writes: int  # the following ones are read-write
    arrays: tuple[tuple[str, str], ...] = ()  # the template's arrays in the order of bindings: name and access
    parts: tuple[int, ...] = ()  # the number of bindings of each array of the template, if an array needs several
    part_bytes: int = 0  # bytes of each part except the last
    text: str | None = None  # the WGSL of a saved plan, which is not rendered

    @functools.cached_property
    def label(self) -> str:
        """Return the short name in error messages, profiles and GPU labels."""
        if self.text is not None:
            return self.template
        name = self.template.removesuffix(".wgsl").rpartition("/")[2]
        flags = ",".join(f"{k}={v}" for k, v in self.flags)
        return f"{name}[{flags}]" if flags else name

    @functools.cached_property
    def _hash(self) -> int:
        rendered = (self.home, self.template, self.flags, self.params, self.arrays, self.parts, self.text)
        return hash((*rendered, self.workgroup, self.reads, self.writes))

    def __hash__(self) -> int:
        return self._hash


_FOLDERS: dict[str, str] = {}  # home -> folder


@functools.cache
def home_of(folder: str) -> str:
    """Return a name for a folder of templates that does not contain its path. Equal folders have equal names.

    All op families of webpte share one name, so that each can run the kernels of another.
    """
    if folder.startswith(PACKAGE + os.sep):
        name = os.path.relpath(folder, PACKAGE).split(os.sep)[0]
        folder = os.path.join(PACKAGE, name)
    else:  # a user's own ops
        name = f"{os.path.basename(folder)}#{sum('#' in home for home in _FOLDERS) + 1}"
    _FOLDERS[name] = folder
    return name


@functools.cache
def environment(folder: str) -> jinja2.Environment:
    """Return the environment of the templates in a folder, which may include those of the library."""
    import jinja2  # a load whose kernels are all cached does not need it

    return _environment_of(jinja2.FileSystemLoader([folder, LIB]))


def _environment_of(loader: jinja2.BaseLoader) -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=loader,
        block_start_string="{$",
        block_end_string="$}",
        line_statement_prefix="$$",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def stamp(folder: str) -> str:
    """Return a text that changes with any template of a folder, and with the code that renders them.

    Templates of the package do not change while a process runs; those of a user's op may, between two loads.
    """
    return _package_stamp(folder) if folder.startswith(PACKAGE) else _compute_stamp(folder)


@functools.cache
def _package_stamp(folder: str) -> str:
    return _compute_stamp(folder)


def _compute_stamp(folder: str) -> str:
    paths = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".wgsl"))
    files = sorted((path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths)
    return f"{__version__} {[os.stat(path).st_mtime_ns for path in _RENDERERS]} {files}"


@functools.cache
def _library(name: str) -> str:
    with open(os.path.join(LIB, name), encoding="ascii") as file:
        return file.read()


def _with_halves(text: str) -> str:
    """Return a text whose halves are stored in f32 words. Conversions, which a store to f16 requires, round."""
    text = re.sub(r"\bf16w\b(?! *\()", "f32", text)
    return re.sub(r"\bf16w *\(", "rounded_half(", text) + "\n" + _library("halves.wgsl")


def render(kernel: Kernel, naga: bool = True) -> str:
    """Return the WGSL text of a kernel, a function of the key and the template files alone.

    naga, which wgpu uses, rejects `enable subgroups` and needs none; other compilers require it.
    """
    text = kernel.text if kernel.text is not None else _cached_text(kernel)
    return text if naga or not uses_subgroups(text) else f"enable subgroups;\n{text}"


def uses_f16(text: str) -> bool:
    """Return whether a kernel uses halves."""
    return text.startswith(_HALF_ENABLED)


def matrices_of(text: str) -> str | None:
    """Return the feature of the matrix units that a kernel uses; None if it uses none. naga rejects such kernels."""
    shape = _MATRICES.search(text)
    return matrix_feature(int(shape[2]), int(shape[3]), int(shape[1])) if shape is not None else None


def uses_subgroups(text: str) -> bool:
    """Return whether a kernel uses subgroups."""
    return "subgroup_invocation_id" in text


def _cached_text(kernel: Kernel) -> str:
    folder = template_folder(kernel.home)
    key = (stamp(folder), stamp(LIB), folder, kernel.template, kernel.flags, kernel.params)
    arrays = (kernel.arrays, kernel.parts, kernel.part_bytes)
    name = hashlib.sha256(repr((*key, kernel.workgroup, SYM_SLOTS, arrays)).encode()).hexdigest()
    text = read_cached(name)
    if text is None:
        text = render_template(kernel)
        write_cached(name, text)
    return text


def template_folder(home: str) -> str:
    """Return the folder of the templates with a name from `home_of`."""
    return _FOLDERS[home]


def render_template(kernel: Kernel, loader: jinja2.BaseLoader | None = None) -> str:
    """Return the WGSL text of a kernel without the cache; `loader` reads the templates in place of the usual one."""
    import jinja2

    loaded = environment(template_folder(kernel.home)) if loader is None else _environment_of(loader)
    try:
        template = loaded.get_template(kernel.template)
        text = template.render(
            **dict(kernel.flags),
            params=kernel.params,
            workgroup=kernel.workgroup,
            sym_slots=SYM_SLOTS,
        )
    except jinja2.TemplateError as error:
        raise GraphError(
            f"kernel {kernel.label}: template {kernel.template} failed: {error}", code="template_failed"
        ) from error
    spend("kernel text", len(text), f"kernel {kernel.template}")
    text = _with_halves(text) if _HALVES.search(text) else text
    text = _MATRICES_ENABLED + text if _MATRICES.search(text) else text
    text = _HALF_ENABLED + text if _HALF.search(text) else text
    text = declare(text, dict(kernel.arrays), kernel.label)
    return split(text, kernel.parts, kernel.part_bytes, kernel.label) if kernel.parts else text


MAX_CACHED_KERNELS = 4096  # files; then the folder is emptied
_DIGEST = 64  # characters of a SHA-256


def read_cached(name: str) -> str | None:
    """Return the cached text of a name; None if it is missing, damaged or owned by another user."""
    folder = _cache_subfolder(kernel_texts_folder())
    if folder is None:
        return None
    try:
        with open(os.path.join(folder, name), "rb", opener=_open) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or not _ours(info) or info.st_size > 4 * limit("kernel text"):
                return None
            data = file.read()
    except OSError:
        return None
    digest, text = data[:_DIGEST], data[_DIGEST:]
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    return text.decode("utf-8", "replace")


def write_cached(name: str, text: str) -> None:
    """Cache a text. Errors of the file system are ignored: the text is rendered again."""
    folder = _cache_subfolder(kernel_texts_folder())
    if folder is None:
        return
    data = text.encode()
    path = os.path.join(folder, name)
    with contextlib.suppress(OSError), atomic_file(path) as temporary, open(temporary, "wb") as file:
        file.write(hashlib.sha256(data).hexdigest().encode() + data)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe must not wait for a writer


@functools.lru_cache(8)
def _cache_subfolder(path: Path) -> str | None:
    """Return the folder of the cache; None if it cannot be created, or if other users could write to it."""
    folder = os.fspath(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        info = os.stat(folder)
        if not _ours(info) or (os.name == "posix" and info.st_mode & 0o022):
            return None
        names = os.listdir(folder)
        if len(names) > MAX_CACHED_KERNELS:
            for name in names:
                os.remove(os.path.join(folder, name))
    except OSError:
        return None
    return folder


def _ours(info: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or info.st_uid == os.geteuid()
