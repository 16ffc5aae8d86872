"""The flags that a template reads. An unknown flag is an error when a program is planned, before a text is rendered."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..errors import GraphError
from ..text import did_you_mean
from .kernel import LIB, RENDERED, environment, read_cached, stamp, template_folder, write_cached

if TYPE_CHECKING:
    import jinja2.nodes


def check_flags(home: str, template: str, flags: Mapping[str, object]) -> None:
    """Raise GraphError if the template and its includes do not read a flag in any branch."""
    if not flags:
        return
    folder = template_folder(home)
    known = _known(folder, template, stamp(folder), stamp(LIB))
    for flag in flags:
        if flag not in known:
            raise GraphError(
                f"{template}: flag {flag}: expected one that the template reads, {', '.join(sorted(known)) or 'none'}, "
                f"got {flags[flag]!r}{did_you_mean(flag, known)}",
                code="unknown_flag",
            )


@functools.cache
def _known(folder: str, template: str, *stamps: str) -> frozenset[str]:
    """Return the flags of a template. They are cached as rendered texts are: a warm load does not import Jinja."""
    name = hashlib.sha256(repr(("flags", folder, template, *stamps)).encode()).hexdigest()
    text = read_cached(name)
    if text is None:
        text = " ".join(sorted(_names(folder, template, stamps, frozenset()) - RENDERED))
        write_cached(name, text)
    return frozenset(text.split())


def _names(folder: str, template: str, stamps: tuple[str, ...], above: frozenset[str]) -> frozenset[str]:
    """Return the names that a template reads and does not set. Templates that include it set those `above`."""
    file = _file(folder, template, *stamps)
    names = file.read - above
    for included in file.included:
        names |= _names(folder, included, stamps, above | file.assigned)
    return names


class _File(NamedTuple):
    """The names in a template without what it includes, and the templates that read the same names."""

    read: frozenset[str]
    assigned: frozenset[str]
    included: list[str]


@functools.cache
def _file(folder: str, template: str, *stamps: str) -> _File:
    import jinja2.meta

    loaded = environment(folder)
    assert loaded.loader is not None
    try:
        tree = loaded.parse(loaded.loader.get_source(loaded, template)[0])
    except jinja2.TemplateError as error:
        raise GraphError(f"template {template} failed: {error}", code="template_failed") from error
    return _File(frozenset(jinja2.meta.find_undeclared_variables(tree)), _assigned(tree), _included(tree))


def _assigned(tree: jinja2.nodes.Template) -> frozenset[str]:
    """Return the names that a template sets."""
    from jinja2 import nodes

    stores = (name for name in tree.find_all(nodes.Name) if name.ctx == "store")
    return frozenset(name.name for name in stores)


def _included(tree: jinja2.nodes.Template) -> list[str]:
    """Return the templates that read this one's names. One that a variable names is among the template's strings."""
    from jinja2 import nodes

    imports: list[nodes.Import | nodes.FromImport] = [*tree.find_all(nodes.Import)]
    imports += tree.find_all(nodes.FromImport)
    readers: list[nodes.Expr] = [node.template for node in tree.find_all(nodes.Include)]
    readers += [node.template for node in imports if node.with_context]
    if not all(isinstance(reader, nodes.Const) for reader in readers):
        apart = [node.template for node in imports if not node.with_context]
        readers = [string for string in tree.find_all(nodes.Const) if string not in apart]
    strings = (reader.value for reader in readers if isinstance(reader, nodes.Const))
    return [string for string in strings if isinstance(string, str) and string.endswith(".wgsl")]
