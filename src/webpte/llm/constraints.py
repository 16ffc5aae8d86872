"""What an answer may be told to follow: a JSON schema, a regular expression, a grammar, or a list of choices."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import InputError
from .errors import ConstraintError

Kind = Literal["json_schema", "regex", "grammar", "choices"]
NEAREST = 1e-9  # to a number that is excluded
_DATA = {"const", "enum", "default", "examples"}  # what stands under them is no schema
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}  # names before schemas
LARGEST = 1 << 18  # characters; compiling takes time and memory in proportion, and expressions come from strangers


@dataclass(frozen=True)
class Constraint:
    """One of them, as text: equal ones are compiled once."""

    kind: Kind
    source: str  # choices are a JSON list

    def __post_init__(self) -> None:
        if len(self.source) > LARGEST:
            raise ConstraintError(
                f"{self.kind} has {len(self.source):,} characters; the most is {LARGEST:,}", code="too_long"
            )


def constraint_from(
    json_schema: Any = None, regex: Any = None, grammar: Any = None, choices: Any = None
) -> Constraint | None:
    """The one that is given, in the form it is kept in; None without any."""
    given = {"json_schema": json_schema, "regex": regex, "grammar": grammar, "choices": choices}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(
            f"{' and '.join(named)} were given; an answer follows one of {', '.join(given)}", code="conflicting_options"
        )
    if json_schema is not None:
        return Constraint("json_schema", _schema(json_schema))
    if choices is not None:
        return Constraint("choices", _choices(choices))
    for kind in ("regex", "grammar"):
        value = given[kind]
        if value is not None:
            if not isinstance(value, str) or not value:
                raise InputError(
                    f"{kind} is a text of at least one character, not {type(value).__name__}", code="wrong_type"
                )
            return Constraint("regex" if kind == "regex" else "grammar", value)
    return None


def _schema(given: Any) -> str:
    """A schema as JSON text, its properties in the order in which they were written."""
    try:
        schema = json.loads(given) if isinstance(given, (str, bytes)) else given
        if isinstance(schema, Mapping):
            schema = dict(schema)
        elif not isinstance(schema, bool):
            raise ConstraintError(
                f"json_schema is an object, true or false, not {type(schema).__name__}", code="wrong_type"
            )
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConstraintError(f"json_schema cannot be read as JSON: {error}", code="invalid_json") from error


def _choices(given: Any) -> str:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InputError(f"choices are a list of texts, not {type(given).__name__}", code="wrong_type")
    for choice in given:
        if not isinstance(choice, str) or not choice:
            raise InputError(f"choices hold {choice!r}; each is a text of at least one character", code="wrong_type")
    if not given:
        raise InputError("choices are empty; an answer needs at least one", code="empty")
    return json.dumps(list(given), ensure_ascii=False)


def without_excluded_integers(schema: Any) -> Any:
    """The schema with `exclusiveMinimum: 5` as `minimum: 5.000000001`, and so on.

    llguidance 1.9.1 allows 5 for numbers above 5 and at most 5.5; it keeps to inclusive bounds.
    """
    if isinstance(schema, list):
        return [without_excluded_integers(inside) for inside in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            found[key] = {name: without_excluded_integers(inside) for name, inside in value.items()}
        else:
            found[key] = value if key in _DATA else without_excluded_integers(value)
    for key, bound, sign in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        excluded = found.get(key)
        if isinstance(excluded, (int, float)) and abs(excluded) <= 1e6 and excluded == int(excluded):
            del found[key]
            bounds = [round(excluded + sign * NEAREST, 9), *([found[bound]] if bound in found else [])]
            found[bound] = max(bounds) if sign > 0 else min(bounds)
    return found


def refusal(constraint: Constraint, why: str) -> ConstraintError:
    """The error for what the compiler says of a constraint."""
    why, code = brief(why), "invalid"
    if constraint.kind == "json_schema":
        why += _places(constraint.source, why)
        if "Default retriever" in why:
            why, code = why + ". A $ref may point only into the schema itself", "external_reference"
    if why.startswith("NoExtension"):  # the parser stopped before the first byte
        why, code = "no text satisfies it", "unsatisfiable"
    return ConstraintError(f"{constraint.kind} cannot be followed: {why}", code=code)


def brief(why: str) -> str:
    """What the package says, without its parser's state, and no longer than one reads."""
    return "\n".join(line[:160] for line in why.split("\n<")[0].rstrip().splitlines()[:6])


def _places(source: str, why: str) -> str:
    """Where in a schema the keywords stand that are not supported."""
    found = re.match(r"Unimplemented keys: (\[.*?\])", why)
    if not found:
        return ""
    named = set(json.loads(found[1]))
    places = [path for path, key in _keys(json.loads(source), "#") if key in named]
    shown = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
    return f" at {shown}" if places else ""


def _keys(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every key of a schema with its path."""
    if isinstance(schema, dict):
        for key, inside in schema.items():
            yield f"{path}/{key}", key
            yield from _keys(inside, f"{path}/{key}")
    elif isinstance(schema, list):
        for at, inside in enumerate(schema):
            yield from _keys(inside, f"{path}/{at}")
