"""A sandbox for chat templates: what they may call, and limits on steps, memory and nesting."""

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

STEPS = 1_000_000  # blocks entered, calls, filters
SECONDS = 1.0  # of this thread's processor time: a busy machine makes no difference
CHARACTERS = 48_000_000  # made in all, intermediate results included
ELEMENT = 64  # characters that an element of a list counts for
TREE = 100_000  # elements of a value, each counted as often as it can be reached
DEPTH = 100
WIDTH = 10_000  # of padding, indentation and the like
BITS = 100_000  # of a whole number
_LOOKS = 64  # steps between two looks at the clock


class Meter:
    """Counts what one rendering has used, and ends it with a FormatError."""

    def __init__(self) -> None:
        self._steps = 0
        self._characters = 0
        self._end = time.thread_time() + SECONDS

    def step(self, characters: int = 0) -> None:
        """One step, which puts out `characters` of the template's own text."""
        self._steps += 1
        if self._steps > STEPS:
            raise over(f"takes more than {STEPS:,} steps")
        if self._steps % _LOOKS == 0:
            self._look()
        if characters:
            self.characters(characters)

    def characters(self, count: int) -> None:
        """`count` characters, or what stands for them, are about to be made."""
        self._characters += count
        if self._characters > CHARACTERS:
            raise over(f"makes more than {CHARACTERS:,} characters")
        if count > 10_000:
            self._look()

    def elements(self, count: int) -> None:
        self.characters(count * ELEMENT)

    def _look(self) -> None:
        if time.thread_time() > self._end:
            raise over(f"takes more than {SECONDS:g} s")

    # -- values ----------------------------------------------------------------------------------------------------

    def made(self, value: Any) -> Any:
        """A value that was just made: its text, or its own elements."""
        if isinstance(value, (str, bytes)):
            self.characters(len(value))
        elif isinstance(value, (list, tuple, Set, Mapping)):
            self.elements(len(value))
        return value

    def made_of(self, value: Any) -> Any:
        """A value that was put together from others, which it may hold several times over."""
        self.size(value)
        return self.made(value)

    def text(self, value: Any) -> str:
        """A value as text."""
        if not isinstance(value, str):
            self.characters(self.size(value)[0])
        shown = str(value)
        self.characters(len(shown))
        return shown

    def size(self, value: Any) -> tuple[int, int]:
        """About how long a value is as text, and how deep it is nested; refused where it is out of all proportion.

        Lists may share elements: a few, each holding the one before twice, have no end when written out or compared.
        """
        if isinstance(value, str):
            return len(value), 0
        characters, elements, deepest = 0, 0, 0
        waiting = [(value, 1)]
        while waiting:
            item, depth = waiting.pop()
            elements += 1
            deepest = max(deepest, depth)
            if elements + len(waiting) > TREE or depth > DEPTH:
                raise over(f"makes a value of more than {TREE:,} elements or {DEPTH} levels")
            if isinstance(item, (str, bytes)):
                characters += len(item)
            elif isinstance(item, Mapping):
                waiting.extend((part, depth + 1) for pair in item.items() for part in pair)
            elif isinstance(item, (list, tuple, Set)):
                waiting.extend((part, depth + 1) for part in item)
        if elements > _LOOKS:
            self._look()
        return characters + elements * ELEMENT, deepest


def check_width(*values: Any) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > WIDTH:
            raise over(f"asks for a width of {value if abs(value) < 10**12 else 'very many'} characters")


def over(what: str) -> FormatError:
    """What ends a template that goes too far."""
    return FormatError(f"the chat template {what}: more than a chat template may", code="template_limit")


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
