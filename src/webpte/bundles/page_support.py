"""Chat templates and tokenizers that a page supports. Those that its own code could treat differently are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jinja2 import TemplateError, nodes

from ..errors import FormatError, UnsupportedError
from ..llm.template_sandbox import TemplateEnvironment

FILTERS = frozenset(
    [
        "abs",
        "capitalize",
        "count",
        "d",
        "default",
        "dictsort",
        "e",
        "escape",
        "first",
        "float",
        "format",
        "indent",
        "int",
        "items",
        "join",
        "last",
        "length",
        "list",
        "lower",
        "map",
        "max",
        "min",
        "reject",
        "rejectattr",
        "replace",
        "reverse",
        "round",
        "safe",
        "select",
        "selectattr",
        "sort",
        "string",
        "sum",
        "title",
        "tojson",
        "trim",
        "unique",
        "upper",
    ]
)
TESTS = frozenset(
    [
        "!=",
        "<",
        "<=",
        "==",
        ">",
        ">=",
        "boolean",
        "callable",
        "defined",
        "divisibleby",
        "eq",
        "equalto",
        "even",
        "false",
        "float",
        "ge",
        "greaterthan",
        "gt",
        "in",
        "integer",
        "iterable",
        "le",
        "lessthan",
        "lower",
        "lt",
        "mapping",
        "ne",
        "none",
        "number",
        "odd",
        "sameas",
        "sequence",
        "string",
        "true",
        "undefined",
        "upper",
    ]
)
ABSENT_METHODS = frozenset(("casefold", "format_map", "isidentifier", "isnumeric", "istitle"))  # of strings
_OF_MARKUP = frozenset(("count", "d", "default", "e", "escape", "length", "safe", "string", "tojson"))
_TAGS: dict[type[nodes.Node], str] = {
    nodes.Block: "block",
    nodes.Extends: "extends",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.ScopedEvalContextModifier: "autoescape",
}
_DATE = re.compile(r"%-?[^%ABCDFHIMRSTUWXYabcdehjmnptuwxyzZ-]")
_PERCENT = re.compile(r"%(?:\(.*?\))?+[-+ 0]*+\d*+(?:\.\d+)?+[^%srdixXf]")
_FIELD = re.compile(r"\{\w*[^\w{}][^{}]*\}")


def check_template(template: str) -> None:
    """Raise an UnsupportedError that names the construct which a page would render differently, if there is one."""
    try:
        tree = TemplateEnvironment().parse(template)
    except TemplateError as error:
        raise FormatError(f"the chat template is not a Jinja template: {error}", code="template_failed") from error
    for construct in _unsupported_nodes(tree):
        raise UnsupportedError(
            f"chat template: {construct} is not supported in a page. Write the template without it.",
            code="template_construct",
        )


def _unsupported_nodes(tree: nodes.Template) -> Iterator[str]:
    for node in tree.find_all(nodes.Node):
        if type(node) in _TAGS:
            yield f"the tag {_TAGS[type(node)]}"
        elif isinstance(node, nodes.For) and node.recursive:
            yield "a recursive loop"
        elif isinstance(node, nodes.Test) and node.name not in TESTS:
            yield f"the test {node.name}"
        elif isinstance(node, nodes.Filter):
            yield from _of_filter(node)
        elif isinstance(node, nodes.Call):
            yield from _of_call(node)
        elif isinstance(node, nodes.Mod):
            yield from _of_format(node.left)


def _of_filter(node: nodes.Filter) -> Iterator[str]:
    if node.name not in FILTERS:
        yield f"the filter {node.name}"
    elif node.name == "int" and (len(node.args) > 1 or any(named.key == "base" for named in node.kwargs)):
        yield "the argument base of the filter int"
    elif node.name == "format":
        yield from _of_format(node.node)
    elif node.name in ("map", "select", "reject", "selectattr", "rejectattr"):
        yield from _of_name(node)
    if (
        isinstance(node.node, nodes.Filter)
        and node.node.name in ("e", "escape", "safe")
        and node.name not in _OF_MARKUP
    ):
        yield f"the filter {node.name} after {node.node.name}"


def _of_name(node: nodes.Filter) -> Iterator[str]:
    """Yield the filter or test that another filter gets by name, if the page does not support it."""
    at = 1 if node.name.endswith("attr") else 0
    name = node.args[at] if len(node.args) > at else None
    known, kind = (FILTERS, "filter") if node.name == "map" else (TESTS, "test")
    if isinstance(name, nodes.Const) and name.value not in known:
        yield f"the {kind} {name.value}"


def _of_call(node: nodes.Call) -> Iterator[str]:
    called, first = node.node, node.args[0] if node.args else None
    name: str | None
    if isinstance(called, nodes.Getattr):
        name = called.attr
    else:
        name = called.arg.value if isinstance(called, nodes.Getitem) and isinstance(called.arg, nodes.Const) else None
    if name in ABSENT_METHODS:
        yield f"the method {name} of strings"
    elif name == "format" and isinstance(called.node, nodes.Const) and _FIELD.search(str(called.node.value)):  # type: ignore[attr-defined]
        yield f"the format {called.node.value!r}"  # type: ignore[attr-defined]
    elif (
        isinstance(called, nodes.Name)
        and called.name == "strftime_now"
        and isinstance(first, nodes.Const)
        and (match := _DATE.search(str(first.value)))
    ):
        yield f"the date format {match[0]}"


def _of_format(node: nodes.Expr | None) -> Iterator[str]:
    text = node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else ""
    if match := _PERCENT.search(text.replace("%%", "")):
        yield f"the format {match[0]}"


COMPONENTS = {
    "normalizer": "BertNormalizer Lowercase NFC NFD NFKC NFKD Prepend Replace Sequence Strip StripAccents",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Digits Metaspace Punctuation Sequence Split "
    "Whitespace WhitespaceSplit",
    "model": "BPE Unigram WordLevel WordPiece",
    "post_processor": "BertProcessing ByteLevel RobertaProcessing Sequence TemplateProcessing",
    "decoder": "BPEDecoder ByteFallback ByteLevel Fuse Metaspace Replace Sequence Strip WordPiece",
}
_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)  # of characters; escapes outside stay as they are
# What the page does not translate of Oniguruma's expressions: escapes, groups, possessive quantifiers.
_ESCAPE = re.compile(r"\\(?:([pP]\{|x\{|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[nrtfvswdSWD]|[^a-zA-Z0-9])|.)", re.DOTALL)
_OUTSIDE = re.compile(r"\(\?(?!:|=|!|<=|<!|i:)|(?:[*+?]|\{\d+(?:,\d*)?\})\+")


def check_tokenizer(data: bytes) -> None:
    """Raise an UnsupportedError that names the part of a `tokenizer.json` which a page lacks, if there is one."""
    try:
        described = json.loads(data)
        missing = next(_unsupported_parts(described), None)
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(f"the tokenizer is not a valid tokenizer.json: {error}", code="not_a_tokenizer") from error
    if missing is not None:
        raise UnsupportedError(
            f"tokenizer.json: {missing} is not supported in a page. Run the model with webpte itself, or use a "
            "tokenizer without it.",
            code="tokenizer_part",
        )


def _unsupported_parts(described: dict[str, Any]) -> Iterator[str]:
    for place, kinds in COMPONENTS.items():
        for part in _flat(described.get(place)):
            kind = part.get("type")
            if kind not in kinds.split() and not (place == "model" and kind is None):
                yield f"the {place} {kind}"
            pattern = part.get("pattern")
            if isinstance(pattern, dict) and "Regex" in pattern:
                yield from _of_expression(pattern["Regex"])
    if described["model"].get("dropout"):
        yield "the model's dropout"


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    """Yield a part and the parts of a sequence."""
    if part is not None:
        yield part
        for key in _SEQUENCES:
            for inside in part.get(key) or ():
                yield from _flat(inside)


def _of_expression(pattern: str) -> Iterator[str]:
    missing = [match[0] for match in _ESCAPE.finditer(pattern) if match[1] is None]
    for match in _CLASS.finditer(pattern):
        inside = _ESCAPE.sub("", match[0])[1:]
        missing += [part for part in ("[", "&&") if part in inside]
    outside = _CLASS.sub("a", pattern)
    missing += [match[0] for match in _OUTSIDE.finditer(outside)]
    for part in missing:
        yield f"{part} in the expression {pattern}"
