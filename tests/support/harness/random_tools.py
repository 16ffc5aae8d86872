"""Random tools and calls of them, with the names and values that formats of tool calls get wrong."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from webpte.llm.tool_shapes import ToolCall, ToolFormat

NAMES = (
    *("from", "class", "in", "is", "import", "None", "True", "lambda", "async", "city", "Days", "x", "größe", "名前"),
    *("file-name", "a.b", "_", "items", "keys", "name", "arguments", "parameters", "type", "self", "n1"),
)
TOOL_NAMES = ("now", "fs.read-all", "import", "get_weather", "class", "a", "parameter", "function", "Tool_2")
STRINGS = (
    *("", " ", "\n", "\n\nx\n", "8001", "-1.5e3", "007", "true", "True", "null", "None", "NaN", "Infinity", "1e5"),
    *('{"a": 1}', "[1, 2]", '"quoted"', "'single'", '"', "'", '\\"', "\\", "\\n", "a\\/b", '"""', "'''", 'it\'s "so"'),
    *(
        "def f(x):\n\treturn x ** 2  # squares\n\n\nprint(f('a'))\n",
        'for i in x:\n    print("\\t", i)\r\n',
        "a\tb\x00c",
    ),
    *(
        "Zürich",
        "東京",
        "👩\u200d👧 e\u0301",
        "\u2028\u2029",
        "\ud7ff\ue000",
        "<b>x</b>",
        "a & b < c",
        "x=1, y=2",
        "f(a=1)",
    ),
    *("<function=x>", "</function>", "<parameter=y>", "call:x{}", "```json\n{}\n```", "a; b", "}", "{", "])"),
)


@dataclass(frozen=True)
class Case:
    """A turn of a model: the tools that it was shown, and its calls."""

    schemas: dict[str, dict[str, Any]]
    calls: list[ToolCall]


class RandomTools:
    """Draws tools and calls that a format can write."""

    def __init__(self, seed: str, format: ToolFormat, markers: bool) -> None:
        self._chance = random.Random(seed)
        self._format = format
        marks = (format.begin, format.end, format.arguments, f"a {format.end}\nb")
        self._strings = [*STRINGS, *(marks if markers else ())]

    def case(self) -> Case:
        chance = self._chance
        names = chance.sample(TOOL_NAMES, chance.randrange(1, 4))
        schemas = {name: self._object(2) for name in names}
        calls = [chance.choice(names) for _ in range(1 if self._format.bare else chance.randrange(1, 4))]
        return Case(schemas, [ToolCall(name, self._value(schemas[name])) for name in calls])

    # -- schemas

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._chance.sample(NAMES, self._chance.randrange(0, 5))
        required = [name for name in names if self._chance.random() < 0.6]
        return {"type": "object", "properties": {n: self._schema(depth - 1) for n in names}, "required": required}

    def _schema(self, depth: int) -> dict[str, Any]:
        kinds = ["string"] * 4 + ["enum", "integer", "number", "boolean", "null", "optional", "either", "untyped"]
        kind = self._chance.choice(kinds + ["array", "object"] * (depth > 0))
        if kind == "enum":
            return {"enum": self._chance.sample([s for s in self._strings if self._writable(s)], 3)}
        if kind == "optional":
            return {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
        if kind == "either":
            return {"type": ["string", "integer"], "description": "a name or a number"}
        if kind == "untyped":
            return {"description": "any text"}
        if kind == "array":
            return {"type": "array", "items": self._schema(depth - 1)}
        return self._object(depth) if kind == "object" else {"type": kind}

    # -- values

    def _value(self, schema: dict[str, Any]) -> Any:
        chance = self._chance
        if "enum" in schema:
            return chance.choice(schema["enum"])
        if "anyOf" in schema:
            return None if chance.random() < 0.3 else self._string({"null"})
        kind = schema.get("type", "untyped")
        if kind == ["string", "integer"]:
            return chance.randrange(-9, 99) if chance.random() < 0.4 else self._string({"number"})
        if kind == "untyped":
            return self._string({"number", "boolean", "null", "array", "object"})
        if kind == "array":
            return [self._value(schema["items"]) for _ in range(chance.randrange(4))]
        if kind == "object":
            present = [n for n in schema["properties"] if n in schema["required"] or chance.random() < 0.5]
            return {name: self._value(schema["properties"][name]) for name in present}
        return self._string() if kind == "string" else self._scalar(kind)

    def _scalar(self, kind: str) -> Any:
        chance = self._chance
        values = {
            "integer": chance.choice([0, -1, 7, 10**20, chance.randrange(-(10**6), 10**6)]),
            "number": chance.choice([0, -0.5, 1e-7, 1e22, 3, chance.uniform(-1e3, 1e3)]),
            "boolean": chance.random() < 0.5,
        }
        return values.get(kind)

    def _string(self, other: set[str] | None = None) -> str:
        """Return a string. If a schema allows `other` types and strings have no quotes, it does not look like those."""
        chance = self._chance
        while True:
            text = chance.choice(self._strings) if chance.random() < 0.8 else self._joined()
            if self._writable(text) and not (other and self._format.shape == "parameters" and _type(text) in other):
                return text

    def _joined(self) -> str:
        return "".join(self._chance.sample(self._strings, 3))

    def _writable(self, text: str) -> bool:
        if self._format.shape == "unquoted":
            return '<|"|>' not in text and self._format.end not in text
        return self._format.shape != "parameters" or "</parameter>" not in text


def _type(text: str) -> str:
    """Return the type of a text as JSON."""
    try:
        value = None if text == "None" else json.loads(text)
    except ValueError:
        return "string"
    names = {bool: "boolean", int: "number", float: "number", type(None): "null", list: "array", dict: "object"}
    return names.get(type(value), "string")


# Templates that write calls as chat templates of the field do. `begin`, `end` and the other parts of a format are
# variables; a template of several calls in a block has `block`.
_EACH = "{% for call in messages[0].tool_calls %}{% set f = call.function %}"
_ARGUMENTS = "{{ f.arguments | tojson }}"
_OBJECT = "{{ '{' }}{{ name | tojson }}: {{ f.name | tojson }}, {{ arguments | tojson }}: " + _ARGUMENTS + "{{ '}' }}"
_COMMA = "{% if not loop.last %}, {% endif %}"
_PYTHON = (
    "{{ f.name }}({% for key, value in f.arguments | items %}{{ key }}="
    "{% if value is boolean or value is none %}{{ value }}{% else %}{{ value | tojson }}{% endif %}" + _COMMA
)
_PYTHON += "{% endfor %})"
_RAW = (
    "<parameter={{ key }}>{{ padding }}{% if value is mapping or (value is sequence and value is not string) %}"
    "{{ value | tojson }}{% else %}{{ value | string }}{% endif %}{{ padding }}</parameter>\n"
)
_UNQUOTED = (
    "{% macro write(value) %}"
    "{% if value is mapping %}{{ '{' }}{% for key, item in value | dictsort %}{{ key }}:{{ write(item) }}"
    "{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}"
    '{% elif value is string %}<|"|>{{ value }}<|"|>'
    "{% elif value is sequence %}[{% for item in value %}{{ write(item) }}{% if not loop.last %},{% endif %}"
    "{% endfor %}]{% else %}{{ value | tojson }}{% endif %}{% endmacro %}"
)
TEMPLATES = {
    "object": _EACH
    + "{% if not bare %}{{ begin }}\n{% endif %}"
    + _OBJECT
    + "{% if end %}\n{% endif %}{{ end }}{% endfor %}",
    "list": "{{ begin }}[" + _EACH + _OBJECT + _COMMA + "{% endfor %}]{{ end }}",
    "keyed": "{{ begin }}["
    + _EACH
    + "{{ '{' }}{{ f.name | tojson }}: "
    + _ARGUMENTS
    + "{{ '}' }}"
    + _COMMA
    + "{% endfor %}]{{ end }}",
    "named": _EACH + "{{ begin }}{{ f.name }}{{ arguments }}" + _ARGUMENTS + "{% endfor %}",
    "python": "{{ begin }}[" + _EACH + _PYTHON + _COMMA + "{% endfor %}]{{ end }}",
    "lines": "{{ begin }}" + _EACH + _PYTHON + "{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}{{ end }}",
    "parameters": _EACH
    + "{{ begin }}\n<function={{ f.name }}>\n{% for key, value in f.arguments | items %}"
    + _RAW
    + "{% endfor %}</function>\n{{ end }}{% endfor %}",
    "unquoted": _UNQUOTED + _EACH + "{{ begin }}call:{{ f.name }}{{ write(f.arguments) }}{{ end }}{% endfor %}",
}
