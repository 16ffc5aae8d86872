"""Wrong calls of public functions and commands: what is expected of each failure.

A table of `Wrong` is parametrised over `check`; the row says what is called, and which argument is wrong::

    TABLE = [
        Wrong(lambda: webpte.load(3), "source"),
        Wrong(("bench", "m.pte", "--repeat", "0"), "--repeat"),
    ]

    @pytest.mark.parametrize("wrong", TABLE, ids=str)
    def test_a_wrong_call_is_told_apart(wrong):
        check(wrong)
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.harness.work import counted_calls
from webpte import errors
from webpte.cli import main
from webpte.errors import Error

MAX_CALLS = 2_000_000  # of functions, by a refusal: about a second of Python
_TRIES = 2  # the first call may import packages
_FEWEST_WORDS = 4  # of a message, beside the argument's name, numbers and what is quoted


@dataclass(frozen=True)
class Wrong:
    """A call that must be refused: a function without arguments, or the arguments of the `webpte` command."""

    call: Callable[[], object] | Sequence[str]
    argument: str  # what the message must name
    kind: type[Error] = Error

    def __str__(self) -> str:
        return self.argument if callable(self.call) else " ".join(self.call)


def check(wrong: Wrong) -> str:
    """Make the call: it fails as it should, and without much work. Gives the message."""
    for _ in range(_TRIES):
        with counted_calls() as work:
            message = _refusal(wrong)
        if work.calls <= MAX_CALLS:
            break
    assert work.calls <= MAX_CALLS, f"{wrong}: took {work.calls:,} calls to be refused: {message}"
    assert wrong.argument in message, f"{wrong}: the message does not name {wrong.argument!r}: {message}"
    assert helps(message, wrong.argument), f"{wrong}: the message says nothing but what was given: {message}"
    return message


def helps(message: str, argument: str) -> bool:
    """Return whether a message has words besides the argument, numbers and quotations of the call."""
    rest = re.sub(r"'[^']*'|\"[^\"]*\"|\S*\d\S*", " ", message.replace(argument, " "))
    return len(re.findall(r"[A-Za-z]+", rest)) >= _FEWEST_WORDS


def _refusal(wrong: Wrong) -> str:
    """The message of the refusal. Anything but a `webpte.Error` of its kind passes through: that is the failure."""
    if not callable(wrong.call):
        return _refusal_of_command(wrong.call, wrong.kind)
    try:
        result = wrong.call()
    except wrong.kind as error:
        return str(error)
    raise AssertionError(f"{wrong}: was not refused, it gave {result!r}")


def _refusal_of_command(arguments: Sequence[str], kind: type[Error]) -> str:
    """Return the message of a command that exits with 1 and an error of this kind, or with 2, as argparse does."""
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(io.StringIO()):
        try:
            code: object = main(arguments)
        except SystemExit as ended:
            code = ended.code
    message = text.getvalue()
    assert code in (1, 2), f"webpte {' '.join(arguments)}: exit code {code}\n{message}"
    if code == 2:
        usage, _, rest = message.partition(": error: ")
        assert usage.startswith("usage: "), f"webpte {' '.join(arguments)}: shows no usage\n{message}"
        return f"{rest.strip()} (usage was shown too)"
    match = re.search(r"^(\w+): (.*)", message, re.MULTILINE | re.DOTALL)
    assert match, f"webpte {' '.join(arguments)}: names no error\n{message}"
    name, rest = match.groups()
    error = getattr(errors, name, object)
    assert issubclass(error, kind), f"webpte {' '.join(arguments)}: {name} is no {kind.__name__}\n{message}"
    return rest
