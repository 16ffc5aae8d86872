"""One call as `<function=name>` with a `<parameter=name>` element for each argument.

Strings have no quotes, and other values are JSON, so that the schema of a tool says what a text stands for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..call_rules import escaped, json_value, limit_of, refused, with_definitions
from ..call_values import (
    DEFINITIONS,
    JSON_TYPES,
    MAX_REFERENCES,
    checked_call,
    json_types,
    properties_of,
    read_raw,
    referenced,
    required_of,
)
from . import CallRules, Schemas, ToolCall, ToolFormat, ToolShape, literal
from .python import python_words

BEGIN, END = "<parameter=", "</parameter>"
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
# A value extends to the end tag that another tag follows: the text of a string may have one, too.
_PARAMETER = re.compile(rf"\s*{BEGIN}([^>\n]+)>(.*?){END}(?=\s*(?:{BEGIN}[^>\n]+>|\Z))", re.DOTALL)
_NAME = re.compile(r"[^\s<>]+")
_BESIDE = frozenset(("title", "description", "default", "examples", "deprecated", "format", "$comment", *DEFINITIONS))
_STRING_KEYWORDS = frozenset(("type", "minLength", "maxLength", "pattern"))


class ParametersShape(ToolShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        match = _FUNCTION.fullmatch(inside)
        if match is None:
            raise ValueError("not a call")
        name, text, at = match[1].strip(), match[2], 0
        schema = schemas.get(name, {})
        properties = properties_of(schema)
        arguments = {}
        while text[at:].strip():
            parameter = _PARAMETER.match(text, at)
            if parameter is None:
                raise ValueError("not a parameter")
            value = parameter[2].removeprefix(format.padding).removesuffix(format.padding)
            arguments[parameter[1]] = read_raw(value, properties.get(parameter[1]), schema)
            at = parameter.end()
        return [checked_call(name, arguments)]

    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        required = required_of(schema)
        parts = [literal(f"<function={name}>\n")]
        for argument, each in properties_of(schema).items():
            if not _NAME.fullmatch(argument):
                raise refused(f"the model cannot write an argument named {argument[:80]!r}")
            begin = literal(f"{BEGIN}{argument}>{rules.format.padding}")
            parameter = rules.add(f"{begin} ({_Value(schema, rules).expression(each)})")
            parts.append(parameter if argument in required else f"{parameter}?")
        return " ".join([*parts, '"</function>"'])

    def block(self, call: str, max_calls: int) -> str:
        return f'"\\n" ({call}) "\\n"'

    def open_string(self, text: str, opened: str) -> str:
        begin, end = text.rfind(BEGIN), text.rfind(END)
        if begin == end:  # neither is there
            return opened
        return BEGIN if begin > end else ""


class _Value:
    """The expression of one argument up to the end of its element."""

    def __init__(self, root: Mapping[str, Any], rules: CallRules) -> None:
        self._root, self._rules = root, rules
        self._end = f"{rules.format.padding}{END}\n"

    def expression(self, schema: Any) -> str:
        types = json_types(schema, self._root)
        if "string" not in types:
            return self._then_end(self._json(schema))
        alternatives = list(dict.fromkeys(self._alternatives(schema, 0)))
        free = self._rules.shared.get(self._patterns({}))  # the rule of any string
        return free if free in alternatives else " | ".join(alternatives)

    def _alternatives(self, schema: Any, depth: int) -> Iterator[str]:
        """Yield expressions, up to the end of the element, that together are a schema which allows strings."""
        if not isinstance(schema, Mapping):
            yield self._text({})
            return
        if depth > MAX_REFERENCES:
            raise refused("a $ref refers to itself")
        key = next((key for key in ("$ref", "allOf", "anyOf", "oneOf", "const", "enum") if key in schema), None)
        beside = {name: each for name, each in schema.items() if name != key and name not in _BESIDE}
        if key is None:
            yield from self._typed(schema)
        elif key in ("const", "enum"):
            values = [schema[key]] if key == "const" else schema[key]
            yield from (self._literal(value) for value in values)
        elif beside or (key == "allOf" and len(schema[key]) > 1):
            raise refused(f"{key} with other keywords is not supported for strings in the model's format of calls")
        else:
            nested = [self._resolved(schema[key])] if key == "$ref" else schema[key]
            for each in nested:
                yield from self._alternatives(each, depth + 1)

    def _typed(self, schema: Mapping[str, Any]) -> Iterator[str]:
        types = json_types(schema, self._root)
        if "string" in types:
            yield self._text(schema)
        others = sorted(types - {"string"})
        if others and types != JSON_TYPES:
            named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            kept = {name: each for name, each in schema.items() if name not in _STRING_KEYWORDS}
            yield self._then_end(self._json({**kept, "type": [name for name in named if name != "string"]}))

    def _resolved(self, path: Any) -> Any:
        try:
            return referenced(path, self._root)
        except ValueError as error:
            raise refused(str(error)) from error

    def _literal(self, value: Any) -> str:
        if isinstance(value, str) and END in value:
            raise refused(f"the model cannot write the string {value[:80]!r}")
        return literal((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) + self._end)

    def _text(self, schema: Mapping[str, Any]) -> str:
        """Return the rule of a string without quotes."""
        patterns = self._patterns(schema)
        if patterns not in self._rules.shared:
            self._rules.shared[patterns] = self._rules.lazy(*patterns)
        return self._rules.shared[patterns]

    def _patterns(self, schema: Mapping[str, Any]) -> tuple[str, ...]:
        """Return regular expressions of a string and the end of its element, whose tag is in no other place."""
        low, high = limit_of(schema, "minLength") or 0, limit_of(schema, "maxLength")
        end, tag = escaped(self._end), escaped(END)
        lengths = f"/(.|\\n){{{low},{'' if high is None else high}}}{end}/"
        pattern = (f"/{_unanchored(schema['pattern'])}{end}/",) if "pattern" in schema else ()
        return (lengths, rf"~/(.|\n)*{tag}(.|\n)*{tag}(.|\n)*/", *pattern)

    def _json(self, schema: Any) -> str:
        return " | ".join([json_value(with_definitions(schema, self._root)), *python_words(schema, self._root)])

    def _then_end(self, expression: str) -> str:
        return f"({expression}) {literal(self._end)}"


def _unanchored(pattern: Any) -> str:
    """Return the regular expression of texts in which a pattern of JSON schema is found."""
    if not isinstance(pattern, str):
        raise refused(f"expected pattern as a string, got {json.dumps(pattern)[:80]}")
    body = pattern.removeprefix("^")
    before = "" if pattern.startswith("^") else "(.|\\n)*"
    anchored = body.endswith("$") and (len(body) - len(body[:-1].rstrip("\\"))) % 2 == 1
    after = "" if anchored else "(.|\\n)*"
    inner = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", body[:-1] if anchored else body)
    return f"{before}({inner}){after}"


SHAPE = ParametersShape()
