"""JSON schemas at random: nested objects, enums, arrays, numbers, strings with patterns. A seed makes one schema."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]

NAMES = ("name", "age", "kind", "tags", "size", "id", "address", "street", "price", "is open", "größe", "x-1", "items")
WORDS = ("red", "green", "dark blue", "ok", "not ok", "A", 'quo"ted', "back\\slash", "naïve", "北京", "line\nbreak", "")
PATTERNS = (
    r"^[A-Z]{3}-[0-9]{4}$",
    r"^[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9]$",
    r"^#[0-9a-f]{6}$",
    r"^(yes|no|maybe)( please)?$",
    r"^[a-z][a-z0-9_]{0,11}$",
    r"^\+?[0-9]{2,3} [0-9]{4,8}$",
    r"^[^\"\\<>]{1,12}$",
    r"^v\d+\.\d+$",
    r"^(a|bc)+$",
)
DEEPEST = 3


def schema(seed: int) -> Schema:
    """Return an object at the top, as people ask for it."""
    maker = _Maker(random.Random(seed))
    result = maker.object(0)
    if maker.definitions:
        result["$defs"] = maker.definitions
    return result


class _Maker:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.definitions: dict[str, Schema] = {}

    def any(self, depth: int) -> Schema:
        flat = (self.string, self.pattern, self.enum, self.integer, self.number, self.constant, self.simple)
        nested = (self.object, self.array, self.either, self.reference)
        kinds = (*flat, *nested) if depth < DEEPEST else flat
        return self._chance.choice(kinds)(depth)

    def object(self, depth: int) -> Schema:
        names = self._chance.sample(NAMES, self._chance.randint(1, 4))
        required = [name for name in names if self._chance.random() < 0.7]
        properties = {name: self.any(depth + 1) for name in names}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def array(self, depth: int) -> Schema:
        least = self._chance.randint(0, 2)
        most = least + self._chance.randint(0, 2)
        return {"type": "array", "items": self.any(depth + 1), "minItems": least, "maxItems": most}

    def either(self, depth: int) -> Schema:
        return {"anyOf": [self.any(depth + 1), self.any(depth + 1)]}

    def reference(self, depth: int) -> Schema:
        name = f"d{len(self.definitions)}"
        self.definitions[name] = {}
        self.definitions[name] = self.any(depth + 1)
        return {"$ref": f"#/$defs/{name}"}

    def string(self, depth: int) -> Schema:
        least = self._chance.randint(0, 4)
        return {"type": "string", "minLength": least, "maxLength": least + self._chance.randint(0, 16)}

    def pattern(self, depth: int) -> Schema:
        return {"type": "string", "pattern": self._chance.choice(PATTERNS), "maxLength": 24}

    def enum(self, depth: int) -> Schema:
        words: list[Any] = self._chance.sample(WORDS, self._chance.randint(1, 5))
        return {"enum": words + self._chance.sample([None, True, 7, -1.5], self._chance.randint(0, 2))}

    def integer(self, depth: int) -> Schema:
        low = self._chance.randint(-1000, 1000)
        return {"type": "integer", "minimum": low, "maximum": low + self._chance.choice((0, 3, 50, 12345))}

    def number(self, depth: int) -> Schema:
        low = self._chance.randint(-40, 40) / 8
        bound = self._chance.choice(("minimum", "exclusiveMinimum"))
        return {"type": "number", bound: low, "maximum": low + self._chance.choice((0.5, 2, 100))}

    def constant(self, depth: int) -> Schema:
        return {"const": self._chance.choice(("fixed", 3, None, [1, "two"], {"a": False}))}

    def simple(self, depth: int) -> Schema:
        return {"type": self._chance.choice(("boolean", "null", ["boolean", "null"]))}
