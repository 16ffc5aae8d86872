"""Kernel keys, and the rendering of their WGSL texts.

A key contains everything that is compiled in: the template, its flags, the uniform block and the workgroup size. All
else is a uniform, so equal keys share one pipeline.

Rendered texts are cached in the user's cache folder, because rendering takes half of a warm load. A file holds the hash
of its text and the text: a truncated or damaged file is rendered again. Files of other owners, and folders that others
may write to, are not read.

Tensors that are larger than one binding are bound in parts. `split_bindings` rewrites a rendered text: every access to
the array of such a tensor becomes a call of a function that selects the part. Only kernels that need parts pay for the
branches, and no kernel is written twice.
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

if TYPE_CHECKING:
    import jinja2
import contextlib
import stat
from collections.abc import Sequence
from pathlib import Path

from ..budgets import limit
from ..cache import cache_folder

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIB = os.path.join(PACKAGE, "wgsl", "lib")
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
        rendered = (self.home, self.template, self.flags, self.params, self.parts, self.text)
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
def _environment(folder: str) -> jinja2.Environment:
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


def _stamp(folder: str) -> str:
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
    return f"{__version__} {os.stat(__file__).st_mtime_ns} {files}"


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


def uses_subgroups(text: str) -> bool:
    """Return whether a kernel uses subgroups."""
    return "subgroup_invocation_id" in text


def _cached_text(kernel: Kernel) -> str:
    folder = template_folder(kernel)
    key = (_stamp(folder), _stamp(LIB), folder, kernel.template, kernel.flags, kernel.params)
    split = (kernel.parts, kernel.part_bytes)
    name = hashlib.sha256(repr((*key, kernel.workgroup, SYM_SLOTS, split)).encode()).hexdigest()
    text = read_cached(name)
    if text is None:
        text = render_template(kernel)
        write_cached(name, text)
    return text


def template_folder(kernel: Kernel) -> str:
    """Return the folder of a kernel's template."""
    return _FOLDERS[kernel.home]


def render_template(kernel: Kernel, loader: jinja2.BaseLoader | None = None) -> str:
    """Return the WGSL text of a kernel without the cache; `loader` reads the templates in place of the usual one."""
    import jinja2

    flags = dict(kernel.flags)
    environment = _environment(template_folder(kernel)) if loader is None else _environment_of(loader)
    try:
        template = environment.get_template(kernel.template)
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
    return split_bindings(text, kernel.parts, kernel.part_bytes, kernel.label) if kernel.parts else text


MAX_CACHED_KERNELS = 4096  # files; then the folder is emptied
_DIGEST = 64  # characters of a SHA-256


def read_cached(name: str) -> str | None:
    """Return the cached text of a name; None if it is missing, damaged or owned by another user."""
    folder = _cache_subfolder(cache_folder())
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
    folder = _cache_subfolder(cache_folder())
    if folder is None:
        return
    data = text.encode()
    path = os.path.join(folder, name)
    with contextlib.suppress(OSError), atomic_file(path) as temporary, open(temporary, "wb") as file:
        file.write(hashlib.sha256(data).hexdigest().encode() + data)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe must not wait for a writer


@functools.lru_cache(8)
def _cache_subfolder(root: Path) -> str | None:
    """Return the folder of the cache; None if it cannot be created, or if other users could write to it."""
    folder = os.path.join(root, "wgsl")
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


_DECLARED = re.compile(r"@group\(1\) @binding\((\d+)\) var<storage, (read|read_write)> (\w+): array<(.+)>;")
_BYTES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2}
_ASSIGNED = re.compile(r"\s*([-+*/%&|^]?)=(?!=)")
_MEMBER_ASSIGNED = re.compile(r"\s*(\.\w+|\[[^]]*\])\s*[-+*/%&|^]?=(?!=)")


def split_bindings(text: str, parts: Sequence[int], part_bytes: int, label: str) -> str:
    """Return the text with `parts[b]` bindings in place of binding b, each of `part_bytes` bytes except the last."""
    functions = []
    first = [sum(parts[:binding]) for binding in range(len(parts))]
    for declared in list(_DECLARED.finditer(text)):
        binding, access, name, element = int(declared[1]), declared[2], declared[3], declared[4]
        count = parts[binding]
        names = [name] if count == 1 else [f"{name}_part{k}" for k in range(count)]
        lines = [
            f"@group(1) @binding({first[binding] + k}) var<storage, {access}> {part}: array<{element}>;"
            for k, part in enumerate(names)
        ]
        text = text.replace(declared[0], "\n".join(lines))
        if count > 1:
            text = _through_functions(text, name, label)
            functions += _functions(names, name, element, part_bytes // _size(element, label), access == "read_write")
    return "\n".join([text, *functions])


def _size(element: str, label: str) -> int:
    vector = re.fullmatch(r"vec([24])<(\w+)>", element)
    scalar, count = (vector[2], int(vector[1])) if vector else (element, 1)
    if scalar not in _BYTES:
        raise GraphError(f"kernel {label}: an array of {element} cannot be bound in parts", code="element_type")
    return _BYTES[scalar] * count


def _through_functions(text: str, name: str, label: str) -> str:
    """Return the text with calls in place of accesses to the array. Functions that shadow the name are rejected."""
    done, rest = "", text
    while head := re.search(r"\bfn \w+\(", rest):
        end = _closing(rest, rest.index("{", head.end()) + 1, "{}", label) + 1
        function = rest[head.start() : end]
        if re.search(rf"(?<!\.)\b{name}\[", function):
            if re.search(rf"\b(let|var|const)\s+{name}\b|[(,]\s*{name}\s*:", function):
                raise GraphError(
                    f"kernel {label}: {name} is also the name of a variable, so its array cannot be bound in parts",
                    code="shadowed_array",
                )
            function = _in_calls(function, name, label)
        done, rest = done + rest[: head.start()] + function, rest[end:]
    return done + rest


def _in_calls(text: str, name: str, label: str) -> str:
    access = re.compile(rf"(?<!\.)\b{name}\[")
    at = 0
    while match := access.search(text, at):
        end = _closing(text, match.end(), "[]", label)
        index, rest = text[match.end() : end], text[end + 1 :]
        if _MEMBER_ASSIGNED.match(rest):
            raise GraphError(
                f"kernel {label} assigns to a member of an element of {name}, which is bound in parts",
                code="member_assignment",
            )
        if assigned := _ASSIGNED.match(rest):
            stop = rest.index(";")
            value = rest[assigned.end() : stop].strip()
            if assigned[1]:
                value = f"{name}[{index}] {assigned[1]} ({value})"
            replaced, rest = f"{name}_into_parts(u32({index}), {value})", rest[stop:]
        else:
            replaced = f"{name}_from_parts(u32({index}))"
        text, at = text[: match.start()] + replaced + rest, match.start()
    return text


def _closing(text: str, at: int, pair: str, label: str) -> int:
    """Return the position of the bracket that closes the one before `at`."""
    depth, steps = 1, {pair[0]: 1, pair[1]: -1}
    for position in range(at, len(text)):
        depth += steps.get(text[position], 0)
        if depth == 0:
            return position
    raise GraphError(f"kernel {label}: a bracket is not closed", code="unbalanced_brackets")


def _functions(names: Sequence[str], name: str, element: str, size: int, writable: bool) -> list[str]:
    read, write = [f"fn {name}_from_parts(i: u32) -> {element} {{"], [f"fn {name}_into_parts(i: u32, v: {element}) {{"]
    for k, part in enumerate(names):
        index = f"i - {k * size}u" if k else "i"
        if k < len(names) - 1:
            read += [f"    if (i < {(k + 1) * size}u) {{", f"        return {part}[{index}];", "    }"]
            write += [f"    if (i < {(k + 1) * size}u) {{", f"        {part}[{index}] = v;", "        return;", "    }"]
        else:
            read.append(f"    return {part}[{index}];")
            write.append(f"    {part}[{index}] = v;")
    return [*read, "}", *(write if writable else ()), *("}" for _ in range(writable))]
