"""The one tree of errors. Every failure a caller can see is a :class:`Error`.

A message names what failed, where (file, op, value), the numbers involved and a fix. `code` is stable between releases:
programs and tests match the class, the code and the fields, not the wording.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypedDict, Unpack


class ErrorFields(TypedDict, total=False):
    """The parts of an error that programs can read."""

    code: str  # the reason, which is appended to the code of the class: "format.truncated"
    argument: str  # the argument, option, field or file at fault
    expected: str  # its type or range
    got: object  # its value
    hint: str  # what to do: one or more sentences


class Error(Exception):
    """Base of everything webpte raises on purpose."""

    code: str = "error"
    exit_code: int = 1  # of a command that ends with the error
    reason: str = ""  # what was appended to the code of the class
    argument: str | None = None
    expected: str | None = None
    got: object = None
    hint: str | None = None
    step: int | None = None  # the graph step at fault, where lowering a call failed

    def __init__(self, message: str = "", **fields: Unpack[ErrorFields]) -> None:
        super().__init__(_render(message, fields))
        reason = fields.get("code")
        if reason:
            self.code, self.reason = f"{type(self).code}.{reason}", reason
        self.argument, self.expected = fields.get("argument"), fields.get("expected")
        self.got, self.hint = fields.get("got"), fields.get("hint") or None

    def to_json(self) -> dict[str, Any]:
        """Return the error as `--json` prints it: `code`, `message`, and those of the fields that are known."""
        fields = {"argument": self.argument, "expected": self.expected, "hint": self.hint}
        got = None if self.got is None else str(self.got)
        known = {name: value for name, value in {**fields, "got": got}.items() if value is not None}
        return {"code": self.code, "message": str(self), **known}


def _render(message: str, fields: ErrorFields) -> str:
    """Return `<argument>: expected <expected>, got <got>. <hint>`, with `message` in place of what is not given."""
    if "expected" in fields:
        message = f"{message}: " if message else ""
        message += f"expected {fields['expected']}, got {fields.get('got')}"
    if argument := fields.get("argument"):
        message = f"{argument}: {message}"
    if hint := fields.get("hint"):
        message = f"{message.removesuffix('.')}. {hint}"
    return message


class FormatError(Error):
    """A file is not what it claims to be: bad magic, truncated, an offset outside its range."""

    code = "format"


class DataError(Error):
    """A constant is missing, has the wrong size, or does not match its consumer."""

    code = "data"

    def __init__(self, message: str, keys: Sequence[str] = (), **fields: Unpack[ErrorFields]) -> None:
        super().__init__(message, **fields)
        self.keys = tuple(keys)  # of constants that are missing


class GraphError(Error):
    """A delegate graph is malformed: a value of the wrong kind, a missing id, a cycle."""

    code = "graph"


class UnsupportedError(Error):
    """The file is valid but asks for something webpte cannot run. All such things are listed at once."""

    code = "unsupported"

    def __init__(self, message: str = "", items: Sequence[str] = (), **fields: Unpack[ErrorFields]) -> None:
        super().__init__(message, **fields)
        self.items = tuple(items)


class InputError(Error):
    """A call was given the wrong number, type or shape of inputs. The method is unchanged."""

    code = "input"


class ShapeError(Error):
    """Live shapes contradict each other or exceed a tensor's bound. The method is unchanged."""

    code = "shape"


class GuardError(Error):
    """A number of a call is out of range, such as a position in a full KV cache. The method is unchanged."""

    code = "guard"


class RangeError(Error):
    """A computed integer does not fit the 32 bits of the device, or is a position outside of a tensor. Nothing is
    returned; state that the call wrote stays, so call `reset()` or restore a snapshot if it has any."""

    code = "range"


class DeviceError(Error):
    """The GPU refused: no adapter, a limit too small, validation failed, device lost."""

    code = "device"


class DeviceLost(DeviceError):  # noqa: N818 - WebGPU calls it so
    """The device is gone, with the state on it: driver reset, GPU unplugged. `Program.recover` opens another."""

    code = "device_lost"


class OutOfMemory(DeviceError):  # noqa: N818 - as WebGPU's
    """A method needs more memory than its device may use. Nothing was taken; the message has the sums."""

    code = "out_of_memory"

    def __init__(self, message: str, needed: int = 0, budget: int = 0, **fields: Unpack[ErrorFields]) -> None:
        super().__init__(message, **fields)
        self.needed = needed
        self.budget = budget


class ClosedError(Error):
    """The object was closed and its GPU memory released."""

    code = "closed"


class ForkedError(Error):
    """The object belongs to the process that this one was forked from. GPU objects do not survive `os.fork()`."""

    code = "forked"


class CancelledError(Error):
    """A `CancelToken` stopped the operation before it was complete. Partial results are deleted."""

    code = "cancelled"


class HubError(Error):
    """A checkpoint could not be downloaded from a hub: missing, gated, unreachable, or with another hash."""

    code = "hub"

    def __init__(self, message: str = "", reason: str = "", **fields: Unpack[ErrorFields]) -> None:
        fields["code"] = reason
        super().__init__(message, **fields)
        # "repository", "revision", "file", "gated", "offline", "unreachable", "hash", "size", "listing" or "disk"
        self.reason = reason


ProblemKind = Literal["constant", "backend", "op", "kernel", "dtype", "limit", "memory", "graph"]


class Problem(NamedTuple):  # a dataclass would cost every start of the program the import of `inspect`
    """One thing that keeps a program from running. Errors list those of a kind; `webpte check` lists all."""

    kind: ProblemKind
    subject: str  # the op, constant or value
    detail: str  # what is wrong with it, with the numbers
    where: tuple[str, ...] = ()  # the calls or values concerned
    remedy: str = ""
    code: str = ""  # the reason, as in `Error.reason`

    def __str__(self) -> str:
        return f"{self.subject} {self.detail}"


def common_code(problems: Sequence[Problem]) -> str:
    """Return the reason that all `problems` share, or "several"."""
    codes = {problem.code for problem in problems}
    return codes.pop() if len(codes) == 1 else "several"


def remedies(problems: Sequence[Problem]) -> list[str]:
    """Return the fixes of the problems, each one once."""
    return list(dict.fromkeys(problem.remedy for problem in problems if problem.remedy))


# -- of language models ------------------------------------------------------------------------------------------------


class ContextFullError(Error):
    """A prompt does not fit into the rest of the model's context. The sequence is unchanged."""

    code = "context_full"


class ConstraintError(Error):
    """A JSON schema, regular expression or grammar is malformed, unsupported, unsatisfiable or too large. Only its own
    answer is affected."""

    code = "constraint"


class LogitsError(Error):
    """The model's logits contain NaN or infinity, or exclude every token: no token can be sampled. The sequence is
    unchanged."""

    code = "logits"


class QueueFullError(Error):
    """The queue is full: `max_queue_size` answers of `LLM.load` are waiting."""

    code = "queue_full"


class StaleGenerationError(Error):
    """Another answer has used this answer's sequence, so it cannot continue. Two answers at once need two sequences."""

    code = "stale_generation"


def error_of(kind: str, message: str, reason: str = "") -> Error:
    """Return the error that another process raised: of this kind if it is one of ours, else a plain Error."""
    error_class = globals().get(kind)
    if isinstance(error_class, type) and issubclass(error_class, Error) and error_class is not HubError:
        return error_class(message, code=reason)
    return Error(message)
