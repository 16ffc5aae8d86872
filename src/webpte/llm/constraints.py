"""Constraints on an answer: JSON schemas, regular expressions, grammars and choices, compiled and matched."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import InputError, UnsupportedError
from .errors import ConstraintError
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance


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
    """The schema with `exclusiveMinimum: 5` as `minimum: 5.000000001`, and `exclusiveMaximum: -5` likewise.

    llguidance 1.9.1 allows 5 for numbers above 5 and at most 5.5; it keeps to inclusive bounds. `exclusiveMaximum: 5`
    stays: it never allows 5 there, and up to 4.999999999 it refuses 4.9. What is no number stays too.
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
        numbers = [found[name] for name in (key, bound) if name in found]
        if key not in found or any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in numbers):
            continue
        excluded, *bounds = numbers
        if 0 <= sign * excluded <= 1e6 and excluded == int(excluded):
            del found[key]
            bounds.append(round(excluded + sign * NEAREST, 9))
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


Mask = np.ndarray[Any, np.dtype[np.uint32]]
KEPT = 64  # compiled constraints
KEPT_CHARACTERS = 128 << 10  # of their sources together; compiled, a character takes some 200 bytes
# As json.dumps writes. With free white space nothing but words would be forced, and small models love to indent.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
EXACT = {"lenient": False, "coerce_one_of": False}  # what cannot be followed is refused, not ignored
MOST_STATES = 50_000  # of a lexer, 1 to 2 kB each. The package bounds the rest: compiling, and a step to some 20 ms


class GrammarMatcher:
    """Follows one answer: what may come next, what must, and whether it is complete."""

    def __init__(self, matcher: llguidance.LLMatcher, known: Mask, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self._known = known  # bits of the tokens that exist
        self._ends = ends
        self._closed = False  # by a token that ends texts

    @property
    def ended(self) -> bool:
        """Nothing may follow but an end."""
        return self._closed or bool(self._matcher.is_stopped())

    def mask(self) -> Mask:
        """A bit for each token that may come next, 32 to a word, the lowest first."""
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)[: len(self._known)]
        self._check()
        allowed = words & self._known
        if not allowed.any():
            raise ConstraintError(
                "the constraint needs text that no token of the vocabulary can begin", code="no_token"
            )
        return allowed

    def forced(self) -> tuple[int, ...]:
        """The tokens that must come next, as far as there is no choice: each is then the only one in its mask."""
        return () if self._closed else tuple(self._matcher.compute_ff_tokens())

    def take(self, token: int) -> None:
        """The next token of the answer."""
        if not self._try(token):
            raise ConstraintError(f"token {token} is not allowed here by the constraint", code="token_not_allowed")

    def _check(self) -> None:
        """An error of the package's, which hides everything but the end from then on, is one."""
        if self._matcher.is_error():
            raise ConstraintError(
                f"the constraint is too complex to follow further: {brief(self._matcher.get_error())}",
                code="too_complex",
            )

    def _try(self, token: int) -> bool:
        if self._closed:
            return False
        if token in self._ends:
            self._closed = bool(self._matcher.is_accepting())
            return self._closed
        taken = self._matcher.try_consume_tokens([token]) == 1
        self._check()
        return taken

    def after(self, drafted: Sequence[int]) -> list[Mask]:
        """The mask behind each drafted token, up to the first that is not allowed or completes the answer."""
        masks: list[Mask] = []
        taken = 0
        try:
            for token in drafted:
                if token in self._ends or not self._try(token):
                    break
                taken += 1
                if self.ended:
                    break
                masks.append(self.mask())
        finally:
            self.rewind(taken)
        return masks

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens."""
        if count and self._closed:
            self._closed = False
            count -= 1
        if count and not self._matcher.rollback(count):
            raise ConstraintError(f"cannot rewind {count} tokens: {brief(self._matcher.get_error())}")

    def copy(self) -> GrammarMatcher:
        """A second one, where this one is."""
        other = GrammarMatcher(self._matcher.deep_copy(), self._known, self._ends)
        other._closed = self._closed
        return other


class GrammarCompiler:
    """Makes compiler for one model's vocabulary. Constraints are compiled once; it may be used from any thread."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: Iterable[int]) -> None:
        self.ends = frozenset(ends)
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Constraint, llguidance.LLMatcher] = OrderedDict()
        llguidance = _package()
        words = _Words(tokenizer, vocabulary, self.ends)
        self._known = words.known
        self._closing = _bits([number in words.ends for number in range(len(words.tokens))])
        self._tokens = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(words), n_vocab=len(words.tokens), eos_token=sorted(words.ends)
        )

    def matcher(self, constraint: Constraint) -> GrammarMatcher:
        """A matcher for an answer that begins now."""
        with self._lock:
            matcher = self._compiled.pop(constraint, None) or self._compile(constraint)
            self._compiled[constraint] = matcher  # the latest used is the last
            while len(self._compiled) > 1 and not self._fit():
                self._compiled.popitem(last=False)
            return GrammarMatcher(matcher.deep_copy(), self._known, self.ends)

    def check(self, constraint: Constraint) -> None:
        """Refuse what cannot be followed. Nothing is kept."""
        with self._lock:
            self._compile(constraint)

    def _fit(self) -> bool:
        """Whether all that is compiled may be kept. Constraints come from strangers, and may all differ."""
        characters = sum(len(constraint.source) for constraint in self._compiled)
        return len(self._compiled) <= KEPT and characters <= KEPT_CHARACTERS

    def _compile(self, constraint: Constraint) -> llguidance.LLMatcher:
        import llguidance

        limits = llguidance.LLParserLimits(max_lexer_states=MOST_STATES, verbose_errors=False)
        grammar = _grammar(constraint)
        matcher = llguidance.LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
        # Only now is known whether there is any text. The mask may have a word more than the vocabulary.
        first = np.frombuffer(matcher.compute_bitmask(), np.uint32)[: len(self._closing)]
        if matcher.is_error():
            raise refusal(constraint, matcher.get_error())
        if matcher.is_accepting() and not (first & ~self._closing).any():
            raise ConstraintError(f"{constraint.kind} allows only the empty text", code="empty_text")
        return matcher


def check_alone(constraint: Constraint) -> None:
    """Refuse what no model could follow, before one is loaded."""
    llguidance = _package()
    if why := llguidance.LLMatcher.validate_grammar(_grammar(constraint)):
        raise refusal(constraint, why)


def _package() -> ModuleType:
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedError("constraints need the llguidance package: pip install 'webpte[llm]'") from error
    return llguidance


def _grammar(constraint: Constraint) -> str:
    """A constraint in the package's own form."""
    import llguidance

    make: dict[str, Callable[[str], str]] = {
        "json_schema": _schema_grammar,
        "regex": llguidance.LLMatcher.grammar_from_regex,
        "grammar": llguidance.LLMatcher.grammar_from_lark,
        "choices": lambda text: llguidance.LLMatcher.grammar_from_lark(_alternatives(json.loads(text))),
    }
    try:
        return make[constraint.kind](constraint.source)
    except ValueError as error:
        raise refusal(constraint, str(error)) from error


def _schema_grammar(text: str) -> str:
    import llguidance

    given = json.loads(text)
    schema = json.dumps(without_excluded_integers({} if given is True else given), ensure_ascii=False)
    return llguidance.LLMatcher.grammar_from_json_schema(schema, LAYOUT, EXACT)  # type: ignore[arg-type]


def _alternatives(choices: Sequence[str]) -> str:
    return "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


class _Words:
    """The vocabulary in the form that the package asks for: attributes and call are its `TokenizerWrapper`'s."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: frozenset[int]) -> None:
        known = tokenizer.token_bytes(vocabulary)
        self._tokenizer = tokenizer
        special = tokenizer.special_ids | ends
        self._numbers = {text: number for number, text in enumerate(known) if text and number not in special}
        self._longest = max(map(len, self._numbers), default=0)
        self.known = _bits([text is not None or number in ends for number, text in enumerate(known)])
        self.tokens = [text or b"" for text in known]
        self.ends = ends
        if not ends:  # the package needs one: a number behind the vocabulary, which no mask shows
            self.ends = frozenset((len(self.tokens),))
            self.tokens.append(b"<end>")
        self.eos_token_id = min(self.ends)
        self.special_token_ids = sorted((special | self.ends) & set(range(len(self.tokens))))

    def __call__(self, data: bytes) -> list[int]:
        """Tokens of a text, which must be exactly the text. Some tokenizers put a space before it, or have more tokens
        than the model; then the longest tokens that fit do."""
        tokens = self._tokenizer.encode(data.decode())
        if all(token < len(self.tokens) for token in tokens) and b"".join(self.tokens[t] for t in tokens) == data:
            return tokens
        tokens, at = [], 0
        while at < len(data):
            lengths = range(min(self._longest, len(data) - at), 0, -1)
            length = next((length for length in lengths if data[at : at + length] in self._numbers), 0)
            if not length:
                break
            tokens.append(self._numbers[data[at : at + length]])
            at += length
        return tokens


def _bits(flags: Sequence[bool]) -> Mask:
    padded = np.zeros(-(-len(flags) // 32) * 32, bool)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)
