"""A sandbox for chat templates: allowed methods and filters, and limits on steps, memory and nesting.

Templates are part of downloaded models. Jinja's own sandbox limits access to Python, but neither time nor memory; its
documented hooks (`code_generator_class`, `intercepted_binops`, `finalize`, filters) are enough to count both.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import FormatError

MAX_STEPS = 1_000_000  # blocks entered, calls, filters
MAX_CPU_SECONDS = 1.0  # of this thread: a busy machine makes no difference
MAX_CHARACTERS = 48_000_000  # of all results, including intermediate ones
CHARACTERS_PER_ELEMENT = 64
MAX_TREE_ELEMENTS = 100_000  # of a value; an element counts once for each path to it
MAX_DEPTH = 100
MAX_WIDTH_CHARACTERS = 10_000  # of padding, indentation and the like
MAX_INTEGER_BITS = 100_000
_STEPS_PER_CLOCK_CHECK = 64


class RenderBudget:
    """The steps, characters and time that one rendering has used. Raises FormatError above a limit."""

    def __init__(self) -> None:
        self._steps = 0
        self._characters = 0
        self._end = time.thread_time() + MAX_CPU_SECONDS

    def step(self, characters: int = 0) -> None:
        """Count one step, which writes `characters` of the template's own text."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise limit_error(f"takes more than {MAX_STEPS:,} steps")
        if self._steps % _STEPS_PER_CLOCK_CHECK == 0:
            self._check_clock()
        if characters:
            self.characters(characters)

    def characters(self, count: int) -> None:
        """Count characters before they are made."""
        self._characters += count
        if self._characters > MAX_CHARACTERS:
            raise limit_error(f"makes more than {MAX_CHARACTERS:,} characters")
        if count > 10_000:
            self._check_clock()

    def elements(self, count: int) -> None:
        self.characters(count * CHARACTERS_PER_ELEMENT)

    def _check_clock(self) -> None:
        if time.thread_time() > self._end:
            raise limit_error(f"takes more than {MAX_CPU_SECONDS:g} s")

    # -- values ----------------------------------------------------------------------------------------------------

    def charge(self, value: Any) -> Any:
        """Count a new value: its characters, or its own elements. Return it."""
        if isinstance(value, (str, bytes)):
            self.characters(len(value))
        elif isinstance(value, (list, tuple, Set, Mapping)):
            self.elements(len(value))
        return value

    def charge_tree(self, value: Any) -> Any:
        """Count a new value that was made of others, which it may contain repeatedly. Return it."""
        self.size(value)
        return self.charge(value)

    def text(self, value: Any) -> str:
        """Return a value as a string, and count it."""
        if not isinstance(value, str):
            self.characters(self.size(value)[0])
        shown = str(value)
        self.characters(len(shown))
        return shown

    def size(self, value: Any) -> tuple[int, int]:
        """Return the approximate length of a value as a string, and its depth. Raise FormatError if it is too large.

        Lists may share elements. A few lists that each contain the one before twice grow exponentially when they are
        written or compared.
        """
        if isinstance(value, str):
            return len(value), 0
        characters, elements, deepest = 0, 0, 0
        waiting = [(value, 1)]
        while waiting:
            item, depth = waiting.pop()
            elements += 1
            deepest = max(deepest, depth)
            if elements + len(waiting) > MAX_TREE_ELEMENTS or depth > MAX_DEPTH:
                raise limit_error(f"makes a value of more than {MAX_TREE_ELEMENTS:,} elements or {MAX_DEPTH} levels")
            if isinstance(item, (str, bytes)):
                characters += len(item)
            elif isinstance(item, Mapping):
                waiting.extend((part, depth + 1) for pair in item.items() for part in pair)
            elif isinstance(item, (list, tuple, Set)):
                waiting.extend((part, depth + 1) for part in item)
        if elements > _STEPS_PER_CLOCK_CHECK:
            self._check_clock()
        return characters + elements * CHARACTERS_PER_ELEMENT, deepest


def check_width(*values: Any) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > MAX_WIDTH_CHARACTERS:
            raise limit_error(f"pads to more than {MAX_WIDTH_CHARACTERS:,} characters")


def limit_error(what: str) -> FormatError:
    """Return the error of a template that exceeds a limit."""
    return FormatError(f"the chat template {what}, which exceeds the limit", code="template_limit")


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


class GenerationTag(Extension):
    """`{% generation %}` marks the text of a model, for training. Its body is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012 - as its base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _MeteredCode(CodeGenerator):
    """Generates code that counts its steps and its values."""

    def blockvisit(self, nodes_: Iterable[nodes.Node], frame: Frame) -> None:
        body = list(nodes_)
        outputs = [child for node in body if isinstance(node, nodes.Output) for child in node.nodes]
        own = sum(len(child.data) for child in outputs if isinstance(child, nodes.TemplateData))
        self.writeline(f"environment.meter.step({own})")
        super().blockvisit(body, frame)

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible  # code generation must not compute values
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
        self._metered("charge_tree", super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self._metered("charge_tree", super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx == "load":
            self._metered("charge_tree", super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            self._metered("charge", super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one rendering."""

    code_generator_class = _MeteredCode
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        self.meter = RenderBudget()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # the optimizer would compute constants without counting
            finalize=self.meter.text,
            extensions=[GenerationTag, "jinja2.ext.loopcontrols"],
        )
        del self.globals["lipsum"]
        self.filters = {name: _metered_filter(self.meter, name, self.filters[name]) for name in _FILTERS.split()}
        self.filters["tojson"] = self._to_json
        self.filters["format"] = lambda value, *parts, **named: self._percent(value, named or parts)

    def joined(self, parts: tuple[Any, ...]) -> str:
        """Return the result of the operator `~`."""
        texts = [self.meter.text(part) for part in parts]
        self.meter.characters(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, (str, bytes)):
            return self._percent(left, right)
        if operator == "+" and isinstance(left, (str, bytes, list, tuple)):
            self.meter.charge(left)
            self.meter.charge(right)
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        return self.meter.charge_tree(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __callable: Any, *args: Any, **named: Any) -> Any:  # noqa: N805
        __self.meter.step()
        owner, name = getattr(__callable, "__self__", None), getattr(__callable, "__name__", "")
        for kind, allowed in METHODS.items():
            if isinstance(owner, kind):
                if name not in allowed:
                    raise SecurityError(f"chat templates may not call {kind.__name__}.{name}")
                args = __self._check_method(owner, name, args, named)
        return __self.meter.charge_tree(super().call(__context, __callable, *args, **named))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return str.format with its widths and repetitions checked first."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def checked(*args: Any, **named: Any) -> str:
            self._check_format(value.__self__, "{", (*args, *named.values()))
            return self.meter.text(wrapped(*args, **named))

        return checked

    def _check_method(self, owner: Any, name: str, args: tuple[Any, ...], named: Any) -> tuple[Any, ...]:
        """Count what a string method can make, and return its arguments."""
        if name in _PADDING:
            check_width(*args, *named.values())
        elif name == "replace" and len(args) >= 2:
            self.meter.characters(_replaced_length(owner, *args[:2]))
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
            each = 1 if isinstance(left, (str, bytes)) else CHARACTERS_PER_ELEMENT
            self.meter.characters(max(right, 0) * len(left) * each)
        elif (
            isinstance(left, int)
            and isinstance(right, int)
            and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS
        ):
            raise limit_error(f"multiplies numbers of more than {MAX_INTEGER_BITS:,} bits")

    def _percent(self, left: Any, right: Any) -> Any:
        values = right if isinstance(right, tuple) else (right,)
        self._check_format(left, "%", values)
        if "*" in str(left):
            check_width(*values)
        return self.meter.charge(left % right)

    def _check_format(self, text: Any, sign: str, values: tuple[Any, ...]) -> None:
        shown = str(text)
        if _WIDE.search(shown):
            raise limit_error("formats to a width of 5 digits")
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
        """Return JSON as in transformers: without HTML escapes, with the options of `json.dumps`."""
        self.meter.step()
        characters, depth = self.meter.size(value)
        spaces = indent if isinstance(indent, int) else len(indent or "")
        check_width(spaces)
        between = sum(map(len, separators or ()))
        self.meter.characters(characters + characters // CHARACTERS_PER_ELEMENT * (depth * spaces + between))
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _metered_filter(meter: RenderBudget, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that counts what it can make. Some filters get the environment or a context before the value."""
    first = 1 if hasattr(real, "jinja_pass_arg") else 0

    @functools.wraps(real)
    def metered(*args: Any, **named: Any) -> Any:
        meter.step()
        values = list(args)
        if len(values) > first:
            values[first] = _checked_value(meter, name, values[first], values[first + 1 :], named)
        return meter.charge(real(*values, **named))

    return metered


def _checked_value(meter: RenderBudget, name: str, value: Any, args: list[Any], named: dict[str, Any]) -> Any:
    """Count what a filter can make of a value, and return the value."""
    rest = [*args, *named.values()]
    if name in ("batch", "indent", "round", "slice", "truncate"):
        check_width(*rest)
    if name == "indent":
        width = max((len(r) if isinstance(r, str) else r for r in rest if isinstance(r, (int, str))), default=4)
        meter.characters((str(value).count("\n") + 1) * int(width))
    elif name == "replace" and len(rest) >= 2:
        value = meter.text(value)
        meter.characters(_replaced_length(value, meter.text(rest[0]), meter.text(rest[1])))
    elif name == "join":
        value = list(value)
        meter.characters(meter.size(value)[0] + len(value) * sum(len(r) for r in rest if isinstance(r, str)))
    elif name == "sum" and any(isinstance(r, (list, tuple)) for r in rest):
        raise SecurityError("in chat templates, sum takes numbers only")
    elif name in ("batch", "list", "slice", "sort", "unique") and isinstance(value, str):
        meter.elements(len(value))
    elif name in ("string", "upper", "lower", "title", "trim", "capitalize", "e", "escape", "urlencode", "truncate"):
        value = value if isinstance(value, str) else meter.text(value)
        meter.characters(6 * len(value) if name in ("e", "escape", "urlencode") else len(value))
    return value


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > MAX_INTEGER_BITS:
        raise limit_error(f"makes a number of more than {MAX_INTEGER_BITS:,} bits")


def _replaced_length(text: Any, old: Any, new: Any) -> int:
    """Return the largest possible length of a string after a replacement."""
    return int(len(text) + (text.count(old) + 1) * len(new))
