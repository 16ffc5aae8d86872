"""Checks of the arguments of public functions, made before anything is opened or changed.

Each returns the value in its checked type, or raises an InputError that names the argument.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ..errors import ForkedError, InputError
from ..text import did_you_mean
from ..typing import PathLike
from ..wgsl.caps import BROWSER_LIMITS, Caps

__all__ = [
    "PathLike",
    "check_bool",
    "check_callable",
    "check_caps",
    "check_choice",
    "check_int",
    "check_limits",
    "check_list",
    "check_memory_limit",
    "check_method_name",
    "check_names",
    "check_numbers",
    "check_optional_callable",
    "check_optional_path",
    "check_path",
    "check_seconds",
    "check_shapes",
    "check_str",
    "described",
    "did_you_mean",
    "wrong_argument",
]

T = TypeVar("T")
MAX_REPR_CHARS = 60  # of a value in a message


def described(value: object) -> str:
    """Return a caller's value for a message: its repr if that is short, else its type."""
    kind = type(value).__name__
    if value is None or isinstance(value, bool):
        return repr(value)
    short = isinstance(value, (list, tuple)) and len(value) <= 4 and all(isinstance(one, (str, int)) for one in value)
    if short or isinstance(value, (str, bytes, int, float)):
        text = repr(value)
        return text if len(text) <= MAX_REPR_CHARS else f"a {kind} that begins with {text[:50]}"
    return f"{'an' if kind[:1] in 'aeiouAEIOU' or kind == 'ndarray' else 'a'} {kind}"


def wrong_argument(argument: str, expected: str, value: object, code: str = "wrong_type") -> InputError:
    """Return the error for an argument with an invalid value."""
    return InputError(argument=argument, expected=expected, got=described(value), code=code)


def _unknown(argument: str, expected: str, value: object, known: Sequence[object], code: str) -> InputError:
    got = f"{described(value)}{did_you_mean(value, known)}"
    return InputError(argument=argument, expected=expected, got=got, code=code)


def check_path(value: object, name: str) -> str:
    """Return a path as a string."""
    try:
        path = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        raise wrong_argument(name, "a path, such as 'model.pte'", value) from None
    if not isinstance(path, str):
        raise InputError(
            argument=name,
            expected="a path as a string",
            got=described(path),
            code="wrong_type",
            hint="Convert it with os.fsdecode.",
        )
    if not path or "\0" in path:
        raise wrong_argument(name, "a path that is not empty and contains no NUL", path, "invalid_path")
    return path


def check_optional_path(value: object, name: str) -> str | None:
    """Return a path as a string, or None."""
    return None if value is None else check_path(value, name)


def check_int(value: object, name: str, lowest: int) -> int:
    """Return an integer of at least `lowest`. NumPy integers are accepted, booleans are not."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else None  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < lowest:
        raise wrong_argument(name, f"an integer of at least {lowest}", value, "invalid_number")
    return number


def check_bool(value: object, name: str) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise wrong_argument(name, "True or False", value)
    return value


def check_str(value: object, name: str, example: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise wrong_argument(name, f"a string, such as {example!r}", value)
    return value


def check_memory_limit(value: object) -> int | None:
    """Return a number of bytes, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise wrong_argument("memory", "a number of bytes of at least 1, or None", value, "invalid_number")
    return value


def check_seconds(value: object, name: str) -> float | None:
    """Return a duration, or None for no limit."""
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if not number:
        raise wrong_argument(name, "a number of seconds above 0, or None for no limit", value, "invalid_number")
    return float(value)  # type: ignore[arg-type]


def check_numbers(value: Iterable[float] | None, name: str) -> list[float] | None:
    """Return a list of finite numbers, or None."""
    if value is None:
        return None
    numbers = check_list(value, name, "numbers", "[0.5, 0.5, 0.5]")
    for position, one in enumerate(numbers):
        if isinstance(one, bool) or not isinstance(one, (int, float)) or not math.isfinite(one):
            raise wrong_argument(f"{name}[{position}]", "a finite number", one, "invalid_number")
    return [float(one) for one in numbers]


def check_choice(value: T, name: str, allowed: Sequence[T]) -> T:
    """Return a value that is one of the allowed strings, or None if that is allowed."""
    if not isinstance(value, (str, type(None))) or value not in allowed:
        raise _unknown(name, f"one of {', '.join(map(repr, allowed))}", value, allowed, "unknown_choice")
    return value


def check_callable(value: object, name: str, parameters: str) -> None:
    """Check that a value can be called; `parameters` describes what it is called with."""
    if not callable(value):
        raise wrong_argument(name, f"a function of {parameters}", value)


def check_optional_callable(value: object, name: str, parameters: str) -> None:
    """Check that a value can be called, or is None."""
    if value is not None:
        check_callable(value, name, parameters)


def check_list(value: Iterable[T], name: str, of: str, example: str) -> list[T]:
    """Return the items of an iterable as a list. Strings, bytes, mappings and arrays count as single values."""
    single = isinstance(value, (str, bytes, bytearray, memoryview, os.PathLike, Mapping))
    try:
        if not single and not hasattr(value, "read") and not hasattr(value, "__array__"):
            return list(value)
    except TypeError:
        pass
    raise wrong_argument(name, f"a list of {of}, such as {example}", value)


def check_shapes(value: Any, name: str) -> list[list[tuple[int, ...]]]:
    """Return a list of calls, each by the dims of every input."""
    example = "[[(1, 3, 224, 224)]]: for each call the dims of every input"
    calls: list[Any] = check_list(value, name, "shapes", example)
    shapes = []
    for number, call in enumerate(calls):
        where = f"{name}[{number}]"
        inputs: list[Any] = check_list(call, where, "dims, one for each input", "[(1, 3, 224, 224)]")
        dims = [check_list(one, f"{where}[{i}]", "sizes", "(1, 3, 224, 224)") for i, one in enumerate(inputs)]
        shapes.append([tuple(check_int(size, f"{where}[{i}]", 0) for size in one) for i, one in enumerate(dims)])
    return shapes


def check_limits(value: object) -> dict[str, int]:
    """Return limits of a device by name; an empty dictionary for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong_argument("limits", 'numbers by name, such as {"max-buffer-size": 268435456}, or None', value)
    for key in value:
        if not isinstance(key, str) or key not in BROWSER_LIMITS:
            raise _unknown(
                "limits", f"names among {', '.join(BROWSER_LIMITS)}", key, [*BROWSER_LIMITS], "unknown_limit"
            )
    return {key: check_int(number, f"limits[{key!r}]", 1) for key, number in value.items()}


def check_names(value: Iterable[str] | None, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Return some of the allowed names; all of them for None."""
    if value is None:
        return tuple(allowed)
    names = check_list(value, name, "names", repr(list(allowed[:1])))
    for item in names:
        if not isinstance(item, str) or item not in allowed:
            raise _unknown(name, f"names among {', '.join(allowed)}", item, allowed, "unknown_choice")
    return tuple(names)


def check_method_name(name: object, methods: Sequence[str], argument: str = "name") -> str:
    """Return the name of one of a program's methods."""
    if not isinstance(name, str) or name not in methods:
        raise _unknown(argument, f"a method of the program ({', '.join(methods)})", name, methods, "unknown_method")
    return name


def check_caps(caps: object) -> None:
    """Check that capabilities are a `Caps`, or None."""
    if caps is not None and not isinstance(caps, Caps):
        raise wrong_argument("caps", "a webpte.wgsl.Caps, or None for this machine's adapter", caps)


class OneProcess:
    """Base of what has memory on a device: another process, or a copy, has to load it."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InputError(
            f"a {type(self).__name__} cannot be pickled or copied, because it has memory on a device",
            code="not_picklable",
            hint="Send the path of its file, and load that in the other process.",
        )


class ProcessGuard:
    """The process that loaded something."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._number = os.getpid()

    @property
    def is_current(self) -> bool:
        return os.getpid() == self._number

    def check(self) -> None:
        """Raise at once in any other process. Comes before any lock, which a thread of the parent may hold for ever."""
        if os.getpid() != self._number:
            raise ForkedError(
                f"{self._what} was loaded by process {self._number} and cannot be used in its fork {os.getpid()}: "
                "GPU objects do not survive os.fork(). Load it in the child, or start workers by spawn, as "
                "multiprocessing.get_context('spawn') does."
            )
