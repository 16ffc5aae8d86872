"""Expect an error by its class, its code and the values in its message, not by its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from webpte import Error

Kind = TypeVar("Kind", bound=Error)


@contextmanager
def raises(kind: type[Kind], *values: object, code: str | None = None) -> Iterator[pytest.ExceptionInfo[Kind]]:
    """Expect `kind` with the code "<code of kind>.<code>", and every one of `values` in its message.

    Without a code any reason will do; "" is an error without a reason. Values are numbers, names and paths: what the
    test gave, or what follows from it.
    """
    with pytest.raises(kind) as caught:
        yield caught
    check(caught.value, *values, code=code)


def check(error: Error, *values: object, code: str | None = None) -> None:
    assert code is None or error.reason == code, f"code: expected reason {code!r}, got {error.code}: {error}"
    missing = [str(value) for value in values if str(value) not in str(error)]
    assert not missing, f"expected {missing} in: {error}"
