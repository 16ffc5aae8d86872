"""Arguments of public functions, checked before anything is opened or changed: an InputError names the argument."""

from __future__ import annotations

import difflib
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import InputError
from ..wgsl.caps import BROWSER_LIMITS, Caps

T = TypeVar("T")
PathLike = str | os.PathLike[str]


def described(value: object) -> str:
    """A caller's value in a message: what it is, and its text where that is short."""
    kind = type(value).__name__
    if value is None or isinstance(value, bool):
        return repr(value)
    few = isinstance(value, (list, tuple)) and len(value) <= 4 and all(isinstance(one, (str, int)) for one in value)
    if few or isinstance(value, (str, bytes, int, float)):
        text = repr(value)
        return text if len(text) <= 60 else f"a {kind} that begins with {text[:50]}"
    return f"{'an' if kind[:1] in 'aeiouAEIOU' or kind == 'ndarray' else 'a'} {kind}"


def path_of(value: object, name: str) -> str:
    """A path as text."""
    try:
        path = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        raise InputError(f"{name} is a path, such as 'model.pte', not {described(value)}") from None
    if not isinstance(path, str):
        raise InputError(f"{name} is a path as text, not as bytes: use os.fsdecode, not {described(path)}")
    if not path or "\0" in path:
        raise InputError(f"{name} is a path, which is neither empty nor holds a NUL, not {described(path)}")
    return path


def whole(value: object, name: str, lowest: int) -> int:
    """An integer of at least `lowest`; NumPy's will do, truth values will not."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else None  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < lowest:
        raise InputError(f"{name} is a whole number, at least {lowest}, not {described(value)}", code="invalid_number")
    return number


def memory_of(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(f"memory is a number of bytes, at least 1, or None, not {described(value)}")
    return value


def seconds_of(value: object, name: str) -> float | None:
    """A time to spend, or None for as long as it takes."""
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if not number:
        raise InputError(
            f"{name} is a number of seconds above 0, or None for as long as it takes, not {described(value)}"
        )
    return float(value)  # type: ignore[arg-type]


def optional_path(value: object, name: str) -> str | None:
    return None if value is None else path_of(value, name)


def numbers_of(value: Iterable[float] | None, name: str) -> list[float] | None:
    """A few numbers, or None."""
    if value is None:
        return None
    found = listed(value, name, "numbers", "[0.5, 0.5, 0.5]")
    for one in found:
        if isinstance(one, bool) or not isinstance(one, (int, float)) or not math.isfinite(one):
            raise InputError(f"{name} is a list of numbers, such as [0.5, 0.5, 0.5], and has {described(one)} in it")
    return [float(one) for one in found]


def flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} is True or False, not {described(value)}", code="wrong_type")
    return value


def one_of(value: T, name: str, allowed: Sequence[T]) -> T:
    """One of a few words, or None where that is among them."""
    if not isinstance(value, (str, type(None))) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise InputError(
            f"{name} is one of {listed}, not {described(value)}{near(value, allowed)}", code="unknown_choice"
        )
    return value


def callback(value: object, name: str, taking: str) -> None:
    if not callable(value):
        raise InputError(f"{name} is a function that is called with {taking}, not {described(value)}")


def optional_callback(value: object, name: str, taking: str) -> None:
    if value is not None:
        callback(value, name, taking)


def listed(value: Iterable[T], name: str, of: str, example: str) -> list[T]:
    """Several of something. A single one is what people pass by mistake, and a text would be taken letter by letter."""
    known = isinstance(value, (str, bytes, bytearray, memoryview, os.PathLike, Mapping))
    single = known or hasattr(value, "read") or hasattr(value, "__array__")
    try:
        if not single:
            return list(value)
    except TypeError:
        pass
    raise InputError(f"{name} is a list of {of}, such as {example}, not {described(value)}")


def shapes_of(value: Any, name: str) -> list[list[tuple[int, ...]]]:
    """Calls, each by the dims of every input."""
    example = "[[(1, 3, 224, 224)]]: for each call the dims of every input"
    calls: list[Any] = listed(value, name, "shapes", example)
    found = []
    for number, call in enumerate(calls):
        where = f"{name}[{number}]"
        inputs: list[Any] = listed(call, where, "dims, one for each input", "[(1, 3, 224, 224)]")
        dims = [listed(one, f"{where}[{i}]", "sizes", "(1, 3, 224, 224)") for i, one in enumerate(inputs)]
        found.append([tuple(whole(size, f"{where}[{i}]", 0) for size in one) for i, one in enumerate(dims)])
    return found


def limits_of(value: object) -> dict[str, int]:
    """Limits of a device by their names; none if there are none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        example = '{"max-buffer-size": 268435456}'
        raise InputError(f"limits are numbers by name, such as {example}, or None, not {described(value)}")
    for key in value:
        if not isinstance(key, str) or key not in BROWSER_LIMITS:
            known = ", ".join(BROWSER_LIMITS)
            raise InputError(f"limits has no name {described(key)}{near(key, tuple(BROWSER_LIMITS))}; it has {known}")
    return {key: whole(number, f"limits[{key!r}]", 1) for key, number in value.items()}


def names_of(value: Iterable[str] | None, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Some of a list of names; all of them for None."""
    if value is None:
        return tuple(allowed)
    chosen = listed(value, name, "names", repr(list(allowed[:1])))
    for item in chosen:
        if not isinstance(item, str) or item not in allowed:
            known = ", ".join(allowed)
            raise InputError(f"{name} has no {described(item)}{near(item, allowed)}; it has {known}")
    return tuple(chosen)


def one_of_methods(name: object, methods: Sequence[str], argument: str = "name") -> str:
    if not isinstance(name, str) or name not in methods:
        raise InputError(
            f"the program has no method {described(name)}{near(name, methods)}; it has {', '.join(methods)}",
            argument=argument,
            code="unknown_method",
        )
    return name


def check_caps(caps: object) -> None:
    if caps is not None and not isinstance(caps, Caps):
        raise InputError(f"caps are a webpte.wgsl.Caps, or None for this machine's adapter, not {described(caps)}")


def text(value: object, name: str, example: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} is a text, such as {example!r}, not {described(value)}", code="wrong_type")
    return value


def near(value: object, allowed: Sequence[Any]) -> str:
    """A question whether one of the words was meant, where one is like what was given."""
    words = [word for word in allowed if isinstance(word, str)]
    found = difflib.get_close_matches(value, words, 1) if isinstance(value, str) else []
    return f" (did you mean {found[0]!r}?)" if found else ""
