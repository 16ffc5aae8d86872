"""What a caller may ask of a generation, checked before anything is touched."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypedDict, TypeVar

from ..errors import InputError
from ..fusion.sampler import MOST_TOPS
from .constraints import Constraint, constraint_from

LARGEST = 2**31 - 1  # integers travel to the device in 32 bits
TEMPERATURES = (1e-6, 1e6)  # beyond which logits divided by one leave the range of f32
MOST_PER_SUBMIT = 4096
PENALTIES = (-100.0, 100.0)  # added to logits, of which the likeliest are some tens above the rest
REPETITION_PENALTIES = (0.01, 100.0)
MOST_BIASES = 1024


class GenerateSettings(TypedDict, total=False):
    """The keywords of `generate`, for type checkers. `SamplingParams` documents them."""

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int
    stop: str | Sequence[str]
    logprobs: bool
    top_logprobs: int
    tokens_per_submit: int | None
    json_schema: Mapping[str, object] | bool | str | bytes | None
    regex: str | None
    grammar: str | None
    choices: Sequence[str] | None
    speculate: bool | None


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen and when to end. Its fields are the keys of `GenerateSettings`, with their defaults.

    The logits of a model are changed first: `repetition_penalty` divides those above 0 of all tokens in the prompt and
    in the answer so far, and multiplies those below; `presence_penalty` is subtracted from the logit of a token that is
    in the answer, `frequency_penalty` as often as it is there; `logit_bias` is added. Then they are divided by the
    temperature, and of what `top_k` leaves `top_p` leaves some, and of those `min_p` the ones at least so likely as
    that part of the likeliest. Log probabilities are those of the unchanged logits.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    stop: str | Sequence[str] = ()
    logprobs: bool = False
    top_logprobs: int = 0  # likeliest tokens to report beside each
    tokens_per_submit: int | None = None  # as many as a reader takes for a stream, unless given
    json_schema: Mapping[str, object] | bool | str | bytes | None = (
        None  # the answer follows this, or one of the next three
    )
    regex: str | None = None
    grammar: str | None = None
    choices: Sequence[str] | None = None
    speculate: bool | None = None  # drafts out of the sequence's own text: where they pay, unless given
    constraint: Constraint | None = field(init=False, default=None)  # what of the four was given

    def __post_init__(self) -> None:
        checked = {
            "max_new_tokens": integer("max_new_tokens", self.max_new_tokens, 1, LARGEST),
            "temperature": _temperature(self.temperature),
            "top_k": integer("top_k", self.top_k, 0, LARGEST),
            "top_p": _top_p(self.top_p),
            "min_p": _between("min_p", self.min_p, 0.0, 1.0),
            "repetition_penalty": _between("repetition_penalty", self.repetition_penalty, *REPETITION_PENALTIES),
            "presence_penalty": _between("presence_penalty", self.presence_penalty, *PENALTIES),
            "frequency_penalty": _between("frequency_penalty", self.frequency_penalty, *PENALTIES),
            "logit_bias": _logit_bias(self.logit_bias),
            "top_logprobs": integer("top_logprobs", self.top_logprobs, 0, MOST_TOPS),
            "seed": integer("seed", self.seed, 0, LARGEST),
            "stop": _stop(self.stop),
            "constraint": constraint_from(self.json_schema, self.regex, self.grammar, self.choices),
        }
        if self.tokens_per_submit is not None:
            checked["tokens_per_submit"] = integer("tokens_per_submit", self.tokens_per_submit, 1, MOST_PER_SUBMIT)
        if not isinstance(self.logprobs, bool):
            raise InputError(f"logprobs is True or False, not {self.logprobs!r}", code="wrong_type")
        if self.speculate is not None and not isinstance(self.speculate, bool):
            raise InputError(f"speculate is True, False or None, not {self.speculate!r}", code="wrong_type")
        for name, value in checked.items():
            object.__setattr__(self, name, value)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def shows_settings(function: _Function) -> _Function:
    """Its signature, as `help` and editors at run time show it, lists every setting with its default.

    Type checkers read `**settings: Unpack[GenerateSettings]` instead, which says the same.
    """
    given = inspect.signature(function)
    types = GenerateSettings.__annotations__
    listed = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default={} if each.default is MISSING else each.default,
            annotation=getattr(types[each.name], "__forward_arg__", types[each.name]),
        )
        for each in fields(SamplingParams)
        if each.init
    ]
    own = [each for each in given.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    vars(function)["__signature__"] = given.replace(parameters=[*own, *listed])
    return function


def sampling_params_from(given: Mapping[str, Any], vocabulary: int = LARGEST) -> SamplingParams:
    """Settings by keyword; one that does not exist is refused by name."""
    known = [each.name for each in fields(SamplingParams) if each.init]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"generate has no setting {name!r}; {meant}There are {', '.join(known)}", code="unknown_option"
            )
    settings = SamplingParams(**given)
    if (highest := max(settings.logit_bias, default=0)) >= vocabulary:
        raise InputError(
            f"logit_bias names token {highest}; the vocabulary has 0 to {vocabulary - 1}", code="token_out_of_range"
        )
    return settings


def integer(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in a range; NumPy's integers are ones too, True and 1.0 are not."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InputError(f"{name} is a whole number, not {_shown(value)}", code="wrong_type")
    if not low <= number <= high:
        raise InputError(f"{name} is between {low} and {high}, not {_shown(number)}", code="out_of_range")
    return number


def tokens_from(given: Any, vocabulary: int) -> tuple[int, ...]:
    """Token ids, each of them in the vocabulary."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InputError(f"tokens are a sequence of whole numbers, not {_shown(given)}", code="wrong_type")
    found = []
    for position, token in enumerate(given):
        try:
            number = None if isinstance(token, bool) else operator.index(token)
        except TypeError:
            number = None
        if number is None:
            raise InputError(f"token {position} is {_shown(token)}; a token is a whole number", code="wrong_type")
        if not 0 <= number < vocabulary:
            raise InputError(
                f"token {position} is {_shown(number)}; the vocabulary has 0 to {vocabulary - 1}",
                code="token_out_of_range",
            )
        found.append(number)
    return tuple(found)


def _temperature(value: Any) -> float:
    number = _real("temperature", value)
    low, high = TEMPERATURES
    if number != 0 and not low <= number <= high:
        raise InputError(f"temperature is 0, or between {low:g} and {high:g}, not {number:g}", code="out_of_range")
    return number


def _top_p(value: Any) -> float:
    number = _real("top_p", value)
    if not 0 < number <= 1:
        raise InputError(f"top_p is above 0 and at most 1, not {number:g}", code="out_of_range")
    return number


def _between(name: str, value: Any, low: float, high: float) -> float:
    number = _real(name, value)
    if not low <= number <= high:
        raise InputError(f"{name} is between {low:g} and {high:g}, not {number:g}", code="out_of_range")
    return number


def _logit_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise InputError(f"logit_bias is a mapping of tokens to numbers, not {_shown(value)}", code="wrong_type")
    if len(value) > MOST_BIASES:
        raise InputError(f"logit_bias holds {len(value)} tokens; {MOST_BIASES} are the most", code="too_many")
    return {
        integer("logit_bias holds tokens, each of which", token, 0, LARGEST): _between(
            f"logit_bias holds numbers; that of token {token}", bias, *PENALTIES
        )
        for token, bias in value.items()
    }


def _real(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is a finite number, not {_shown(value)}", code="wrong_type")
    return number


def _stop(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise InputError(f"stop is a text or a list of texts, not {_shown(value)}", code="wrong_type")
    listed = tuple(texts)
    for text in listed:
        if not isinstance(text, str) or not text:
            raise InputError(
                f"stop holds {_shown(text)}; each must be a text of at least one character", code="wrong_type"
            )
    return listed


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}... ({type(value).__name__})"
