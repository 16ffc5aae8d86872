"""The settings of a generation, checked before anything else happens."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict, TypeVar, cast

from ..errors import InputError
from ..fusion.llm_rewrites import MAX_TOP_LOGPROBS
from ..text import close_matches
from .constraints import CONSTRAINT_KINDS, Constraint, constraint_from
from .thinking import REASONING_EFFORTS, ReasoningEffort, Thought

LARGEST = 2**31 - 1  # integers travel to the device in 32 bits
TEMPERATURES = (1e-6, 1e6)  # beyond which logits divided by one leave the range of f32
MAX_TOKENS_PER_SUBMIT = 4096
PENALTIES = (-100.0, 100.0)  # added to logits, which differ by some tens
REPETITION_PENALTIES = (0.01, 100.0)
MAX_BIASED_TOKENS = 1024
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 4096  # of all stop strings of a request
MAX_NEW_TOKENS = 1024  # of an answer whose length is not set, in all front ends


class GenerateSettings(TypedDict, total=False):
    """The keywords of `generate`, for type checkers. `SamplingParams` documents them.

    One of the last four keywords before `speculate` may constrain the text.
    """

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_allowed_length: int
    logit_bias: Mapping[int, float]
    seed: int
    stop: str | Sequence[str]
    logprobs: bool
    top_logprobs: int
    tokens_per_submit: int | None
    think: bool | None
    reasoning_effort: ReasoningEffort | None
    thinking_budget: int | None
    json_schema: Mapping[str, object] | bool | str | bytes | None
    regex: str | None
    grammar: str | None
    choices: Sequence[str] | None
    speculate: bool | None
    adapter: str | None


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled and when a generation ends: values that `sampling_params_from` has checked.

    First the logits are adjusted. `repetition_penalty` divides positive logits, and multiplies negative ones, of all
    tokens in the prompt and the text so far. `presence_penalty` is subtracted once, `frequency_penalty` per occurrence,
    from the logits of generated tokens. `dry_multiplier` ends loops: if the last n ≥ `dry_allowed_length` tokens of the
    answer occur earlier in it, it subtracts `dry_multiplier` · 1.75^(n − `dry_allowed_length`) from the logit of the
    token that followed there. `logit_bias` is added. Then logits are divided by the temperature. `top_k`,
    `top_p` and `min_p` filter tokens in this order; `min_p` keeps tokens with at least that fraction of the highest
    probability. Log probabilities are those of the unchanged logits.
    """

    max_new_tokens: int = MAX_NEW_TOKENS
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_allowed_length: int = 6
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0  # most probable tokens to report at each position
    tokens_per_submit: int | None = None  # None: as many as 25 ms can compute, up to 4
    speculate: bool | None = None  # n-gram drafts out of the sequence's own text; None: while they pay
    constraint: Constraint | None = None  # that the text follows
    think: bool | None = None  # before the answer; None: as the chat template does
    reasoning_effort: ReasoningEffort | None = None  # "none": do not think; the template may know the others
    thinking_budget: int | None = None  # maximum tokens of the thought; None: no limit
    adapter: str | None = None  # of those that the model was loaded with; None: the model itself
    thought: Thought | None = None  # how the response may begin: `TextModel.with_thought` sets it


DEFAULTS: Mapping[str, Any] = {
    name: getattr(SamplingParams(), name, None) for name in GenerateSettings.__annotations__
}  # of the settings; None for constraints
_Function = TypeVar("_Function", bound=Callable[..., Any])


def shows_settings(function: _Function) -> _Function:
    """Give a function a signature that lists every setting with its default, for `help` and editors.

    Type checkers read `**settings: Unpack[GenerateSettings]` instead.
    """
    signature = inspect.signature(function)
    listed = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=DEFAULTS[name],
            annotation=getattr(type, "__forward_arg__", type),
        )
        for name, type in GenerateSettings.__annotations__.items()
    ]
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *listed])
    return function


def sampling_params_from(settings: Mapping[str, Any], vocabulary: int = LARGEST) -> SamplingParams:
    """Return settings of `generate`, checked. An unknown name is an InputError."""
    for name in settings:
        if name not in DEFAULTS:
            near = close_matches(str(name), DEFAULTS)
            raise InputError(
                argument=str(name),
                expected=f"one of the settings {', '.join(DEFAULTS)}",
                got=repr(name),
                hint=f"Did you mean {near[0]}?" if near else "",
                code="unknown_option",
            )
    checked = {name: check(settings[name]) for name, check in CHECKS.items() if name in settings}
    constraint = constraint_from(**{kind: settings.get(kind) for kind in CONSTRAINT_KINDS})
    params = SamplingParams(**checked, constraint=constraint)
    if (highest := max(params.logit_bias, default=0)) >= vocabulary:
        raise InputError(
            argument="logit_bias",
            expected=f"tokens from 0 to {vocabulary - 1}",
            got=highest,
            code="token_out_of_range",
        )
    return params


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Return an integer in a range. NumPy's integers are accepted, booleans and floats are not."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise _wrong_type(name, "an integer", value)
    if not low <= number <= high:
        raise _out_of_range(name, f"an integer from {low} to {high}", _shown(number))
    return number


def tokens_from(tokens: Any, vocabulary: int) -> tuple[int, ...]:
    """Return token ids, all of which are in the vocabulary."""
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Iterable):
        raise _wrong_type("tokens", "a sequence of integers", tokens)
    numbers = []
    for position, token in enumerate(tokens):
        try:
            number = None if isinstance(token, bool) else operator.index(token)
        except TypeError:
            number = None
        if number is None:
            raise _wrong_type(f"tokens[{position}]", "an integer", token)
        if not 0 <= number < vocabulary:
            raise InputError(
                argument=f"tokens[{position}]",
                expected=f"a token from 0 to {vocabulary - 1}",
                got=_shown(number),
                code="token_out_of_range",
            )
        numbers.append(number)
    return tuple(numbers)


def stop_strings(value: Any) -> tuple[str, ...]:
    """Return stop strings given as one string or several. Their number and total length are bounded."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise _wrong_type("stop", "a string or a list of strings", value)
    listed = tuple(texts)
    if len(listed) > MAX_STOP_STRINGS:
        raise InputError(
            argument="stop", expected=f"at most {MAX_STOP_STRINGS} strings", got=len(listed), code="too_many"
        )
    for text in listed:
        if not isinstance(text, str) or not text:
            raise _wrong_type("stop", "strings of at least one character", text)
    if (total := sum(map(len, listed))) > MAX_STOP_CHARS:
        raise InputError(
            argument="stop", expected=f"at most {MAX_STOP_CHARS} characters in all strings", got=total, code="too_long"
        )
    return listed


def _temperature(value: Any) -> float:
    number = _real("temperature", value)
    low, high = TEMPERATURES
    if number != 0 and not low <= number <= high:
        raise _out_of_range("temperature", f"0, or a number from {low:g} to {high:g}", f"{number:g}")
    return number


def _top_p(value: Any) -> float:
    number = _real("top_p", value)
    if not 0 < number <= 1:
        raise _out_of_range("top_p", "a number above 0 and at most 1", f"{number:g}")
    return number


def _between(name: str, value: Any, low: float, high: float) -> float:
    number = _real(name, value)
    if not low <= number <= high:
        raise _out_of_range(name, f"a number from {low:g} to {high:g}", f"{number:g}")
    return number


def _logit_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise _wrong_type("logit_bias", "a mapping of tokens to numbers", value)
    if len(value) > MAX_BIASED_TOKENS:
        raise InputError(
            argument="logit_bias", expected=f"at most {MAX_BIASED_TOKENS} tokens", got=len(value), code="too_many"
        )
    return {
        integer("logit_bias", token, 0, LARGEST): _between(f"logit_bias[{_shown(token)}]", bias, *PENALTIES)
        for token, bias in value.items()
    }


def _real(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _wrong_type(name, "a finite number", value)
    return number


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type(name, "True or False", value)
    return value


def _speculate(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise _wrong_type("speculate", "True, False or None", value)
    return value


def _think(value: Any) -> bool | None:
    return None if value is None else _boolean("think", value)


def _reasoning_effort(value: Any) -> ReasoningEffort | None:
    if value is not None and value not in REASONING_EFFORTS:
        raise _wrong_type("reasoning_effort", f"one of {', '.join(REASONING_EFFORTS)}, or None", value)
    return cast(ReasoningEffort | None, value)


def _thinking_budget(value: Any) -> int | None:
    return None if value is None else integer("thinking_budget", value, 0, LARGEST)


def _adapter(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _wrong_type("adapter", "the name of an adapter, or None", value)
    return value


def _tokens_per_submit(value: Any) -> int | None:
    return None if value is None else integer("tokens_per_submit", value, 1, MAX_TOKENS_PER_SUBMIT)


def _wrong_type(name: str, expected: str, value: Any) -> InputError:
    return InputError(argument=name, expected=expected, got=_shown(value), code="wrong_type")


def _out_of_range(name: str, expected: str, got: str) -> InputError:
    return InputError(argument=name, expected=expected, got=got, code="out_of_range")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}... ({type(value).__name__})"


def _integer_from(name: str, low: int, high: int = LARGEST) -> Callable[[Any], int]:
    return lambda value: integer(name, value, low, high)


def _number_from(name: str, low: float, high: float) -> Callable[[Any], float]:
    return lambda value: _between(name, value, low, high)


CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "max_new_tokens": _integer_from("max_new_tokens", 1),
    "temperature": _temperature,
    "top_k": _integer_from("top_k", 0),
    "top_p": _top_p,
    "min_p": _number_from("min_p", 0.0, 1.0),
    "repetition_penalty": _number_from("repetition_penalty", *REPETITION_PENALTIES),
    "presence_penalty": _number_from("presence_penalty", *PENALTIES),
    "frequency_penalty": _number_from("frequency_penalty", *PENALTIES),
    "dry_multiplier": _number_from("dry_multiplier", 0.0, PENALTIES[1]),
    "dry_allowed_length": _integer_from("dry_allowed_length", 1),
    "logit_bias": _logit_bias,
    "seed": _integer_from("seed", 0),
    "stop": stop_strings,
    "logprobs": partial(_boolean, "logprobs"),
    "top_logprobs": _integer_from("top_logprobs", 0, MAX_TOP_LOGPROBS),
    "tokens_per_submit": _tokens_per_submit,
    "think": _think,
    "reasoning_effort": _reasoning_effort,
    "thinking_budget": _thinking_budget,
    "speculate": _speculate,
    "adapter": _adapter,
}  # each returns a checked setting; constraints are read together
