"""The environment that chat templates run in: Jinja's immutable sandbox, and a meter on all that can grow.

The sandbox keeps a template from reaching Python. The meter keeps it from looping, nesting and padding without end:
code is generated with a step at the head of every block, operators and calls are looked at before they are carried out,
and filters and methods that no template needs do not exist.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .template_limits import BITS, ELEMENT, Meter, check_width, over

_FILTERS = """
    abs batch capitalize count d default dictsort e escape first float format forceescape groupby indent int items
    join last length list lower map max min reject rejectattr replace reverse round safe select selectattr slice sort
    string sum title tojson trim truncate unique upper urlencode wordcount
"""
_TEXT_METHODS = """
    capitalize casefold center count endswith find format format_map index isalnum isalpha isascii isdecimal isdigit
    isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition removeprefix
    removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title
    upper zfill
"""
METHODS = {str: frozenset(_TEXT_METHODS.split()), bytes: frozenset(("decode",)), int: frozenset()}
_PADDING = frozenset(("center", "ljust", "rjust", "zfill"))
_WIDE = re.compile(r"\d{5,}")  # a width, in a format


class Generation(Extension):
    """`{% generation %}` marks what a model said, for training. Here its body is put out as it is."""

    tags = {"generation"}  # noqa: RUF012 - as its base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _MeteredCode(CodeGenerator):
    """Generates code that pays for its steps and its values."""

    def blockvisit(self, nodes_: Iterable[nodes.Node], frame: Frame) -> None:
        body = list(nodes_)
        outputs = [child for node in body if isinstance(node, nodes.Output) for child in node.nodes]
        own = sum(len(child.data) for child in outputs if isinstance(child, nodes.TemplateData))
        self.writeline(f"environment.meter.step({own})")
        super().blockvisit(body, frame)

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible  # nothing is computed while code is generated
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - Jinja's names
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def _metered(self, how: str, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        self.write(f"environment.meter.{how}(")
        visit(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self._metered("made_of", super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self._metered("made_of", super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx == "load":
            self._metered("made_of", super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            self._metered("made", super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """For one rendering."""

    code_generator_class = _MeteredCode
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        self.meter = Meter()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # which would compute constants, unmetered
            finalize=self.meter.text,
            extensions=[Generation, "jinja2.ext.loopcontrols"],
        )
        del self.globals["lipsum"]
        self.filters = {name: _metered_filter(self.meter, name, self.filters[name]) for name in _FILTERS.split()}
        self.filters["tojson"] = self._to_json
        self.filters["format"] = lambda value, *parts, **named: self._percent(value, named or parts)

    def joined(self, parts: tuple[Any, ...]) -> str:
        """The operator ~."""
        texts = [self.meter.text(part) for part in parts]
        self.meter.characters(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, (str, bytes)):
            return self._percent(left, right)
        if operator == "+" and isinstance(left, (str, bytes, list, tuple)):
            self.meter.made(left)
            self.meter.made(right)
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        return self.meter.made_of(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __callable: Any, *args: Any, **named: Any) -> Any:  # noqa: N805
        __self.meter.step()
        owner, name = getattr(__callable, "__self__", None), getattr(__callable, "__name__", "")
        for kind, allowed in METHODS.items():
            if isinstance(owner, kind):
                if name not in allowed:
                    raise SecurityError(f"{kind.__name__}.{name} is not for chat templates")
                args = __self._check_method(owner, name, args, named)
        return __self.meter.made_of(super().call(__context, __callable, *args, **named))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format, whose widths and repetitions are looked at first."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def checked(*args: Any, **named: Any) -> str:
            self._check_format(value.__self__, "{", (*args, *named.values()))
            return self.meter.text(wrapped(*args, **named))

        return checked

    def _check_method(self, owner: Any, name: str, args: tuple[Any, ...], named: Any) -> tuple[Any, ...]:
        """The arguments of a method of a text, once what it can make is paid for."""
        if name in _PADDING:
            check_width(*args, *named.values())
        elif name == "replace" and len(args) >= 2:
            self.meter.characters(_replaced(owner, *args[:2]))
        elif name == "join" and args:
            parts = list(args[0])
            self.meter.characters(sum(len(part) for part in parts if isinstance(part, str)) + len(parts) * len(owner))
            return (parts,)
        elif name in ("split", "rsplit", "splitlines"):
            self.meter.characters(len(owner))
        return args

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(right, (str, bytes, list, tuple)):
            left, right = right, left
        if isinstance(left, (str, bytes, list, tuple)) and isinstance(right, int):
            each = 1 if isinstance(left, (str, bytes)) else ELEMENT
            self.meter.characters(max(right, 0) * len(left) * each)
        elif isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > BITS:
            raise over(f"multiplies numbers of more than {BITS:,} bits")

    def _percent(self, left: Any, right: Any) -> Any:
        values = right if isinstance(right, tuple) else (right,)
        self._check_format(left, "%", values)
        if "*" in str(left):
            check_width(*values)
        return self.meter.made(left % right)

    def _check_format(self, text: Any, sign: str, values: tuple[Any, ...]) -> None:
        shown = str(text)
        if _WIDE.search(shown):
            raise over("formats to a width of 5 digits")
        if sign == "{" and re.search(r":[^{}]*\{", shown):
            check_width(*values)
        self.meter.characters(len(shown) + shown.count(sign) * (self.meter.size(list(values))[0] + 10_000))

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As transformers has it: no HTML escapes, and the options of `json.dumps`."""
        self.meter.step()
        characters, depth = self.meter.size(value)
        spaces = indent if isinstance(indent, int) else len(indent or "")
        check_width(spaces)
        between = sum(map(len, separators or ()))
        self.meter.characters(characters + characters // ELEMENT * (depth * spaces + between))
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _metered_filter(meter: Meter, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for what it can make. Some are given the environment or a context before the value."""
    first = 1 if hasattr(real, "jinja_pass_arg") else 0

    @functools.wraps(real)
    def metered(*args: Any, **named: Any) -> Any:
        meter.step()
        given = list(args)
        if len(given) > first:
            given[first] = _checked_value(meter, name, given[first], given[first + 1 :], named)
        return meter.made(real(*given, **named))

    return metered


def _checked_value(meter: Meter, name: str, value: Any, args: list[Any], named: dict[str, Any]) -> Any:
    """The value that a filter is given, once what the filter can make of it is paid for."""
    rest = [*args, *named.values()]
    if name in ("batch", "indent", "round", "slice", "truncate"):
        check_width(*rest)
    if name == "indent":
        width = max((len(r) if isinstance(r, str) else r for r in rest if isinstance(r, (int, str))), default=4)
        meter.characters((str(value).count("\n") + 1) * int(width))
    elif name == "replace" and len(rest) >= 2:
        value = meter.text(value)
        meter.characters(_replaced(value, meter.text(rest[0]), meter.text(rest[1])))
    elif name == "join":
        value = list(value)
        meter.characters(meter.size(value)[0] + len(value) * sum(len(r) for r in rest if isinstance(r, str)))
    elif name == "sum" and any(isinstance(r, (list, tuple)) for r in rest):
        raise SecurityError("sum is for numbers in chat templates")
    elif name in ("batch", "list", "slice", "sort", "unique") and isinstance(value, str):
        meter.elements(len(value))
    elif name in ("string", "upper", "lower", "title", "trim", "capitalize", "e", "escape", "urlencode", "truncate"):
        value = value if isinstance(value, str) else meter.text(value)
        meter.characters(6 * len(value) if name in ("e", "escape", "urlencode") else len(value))
    return value


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > BITS:
        raise over(f"makes a number of more than {BITS:,} bits")


def _replaced(text: Any, old: Any, new: Any) -> int:
    """The length of a text after a replacement, at most."""
    return int(len(text) + (text.count(old) + 1) * len(new))
