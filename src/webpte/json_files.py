"""Read the JSON files that come with a model. They are bounded, and every value is one that Python can work with.

Python's reader returns integers of thousands of digits, which raise OverflowError or ValueError wherever they are used,
strings that cannot be encoded, and lists that are nested deeply enough to end every recursive function.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import FormatError

MAX_JSON_BYTES = 64 << 20  # an index of weights has a few MB
MAX_DEPTH = 64  # of lists and objects in each other
MAX_INTEGER = 1 << 63


def read_json_object(path: Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the object of a JSON file."""
    value = read_json(path, max_bytes)
    if not isinstance(value, dict):
        raise FormatError(argument=str(path), expected="a JSON object", got=type(value).__name__, code="invalid_json")
    return value


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the value of a JSON file."""
    try:
        if (size := path.stat().st_size) > max_bytes:
            raise FormatError(
                argument=str(path), expected=f"at most {max_bytes} bytes", got=size, code="file_too_large"
            )
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error}", code="unreadable") from error
    return parse_json(data, str(path))


def parse_json(text: str | bytes, where: str) -> Any:
    """Return a JSON value, checked; `where` is named in errors. Integers of more than 64 bits become floats."""
    try:
        value = json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, parse_int=_integer)
        _check(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is not valid JSON: {error}", code="invalid_json") from error
    return value


def _integer(digits: str) -> int | float:
    """Return an integer, or a float if it has more than 64 bits, such as 10**30 for a context without an end."""
    if len(digits) > 20:
        return float(digits)
    value = int(digits)
    return value if -MAX_INTEGER <= value < MAX_INTEGER else float(value)


def _check(value: Any) -> None:
    """Raise ValueError for strings that are not Unicode, and for deep nesting. The walk is not recursive."""
    level = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        inner: list[Any] = []
        for each in level:
            if isinstance(each, str):
                each.encode()  # UnicodeEncodeError, a ValueError, for half of a surrogate pair
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, dict):
                inner += each
                inner += each.values()
        level = inner
    if level:
        raise ValueError(f"expected at most {MAX_DEPTH} lists and objects in each other, got more")
