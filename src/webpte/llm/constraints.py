"""Constrained generation: JSON schemas, regular expressions, grammars and choices, compiled and matched."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ..errors import ConstraintError, InputError, UnsupportedError
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance


Kind = Literal["json_schema", "regex", "grammar", "choices"]
CONSTRAINT_KINDS: tuple[Kind, ...] = get_args(Kind)
EXCLUSIVE_BOUND_STEP = 1e-9  # between an exclusive bound and the inclusive one that replaces it
_DATA = {"const", "enum", "default", "examples"}  # their values are data, not schemas
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}  # mappings of names to schemas
MAX_SOURCE_CHARS = 1 << 18  # compiling takes time and memory in proportion, and requests are untrusted


@dataclass(frozen=True)
class Constraint:
    """A constraint as text. Equal ones are compiled once."""

    kind: Kind
    source: str  # choices are a JSON list

    def __post_init__(self) -> None:
        if len(self.source) > MAX_SOURCE_CHARS:
            raise ConstraintError(
                argument=self.kind,
                expected=f"at most {MAX_SOURCE_CHARS:,} characters",
                got=f"{len(self.source):,}",
                code="too_long",
            )


def constraint_from(
    json_schema: Any = None, regex: Any = None, grammar: Any = None, choices: Any = None
) -> Constraint | None:
    """Return the constraint that is given; None if there is none."""
    sources = {"json_schema": json_schema, "regex": regex, "grammar": grammar, "choices": choices}
    named = [name for name, value in sources.items() if value is not None]
    if len(named) > 1:
        raise InputError(
            argument="constraints",
            expected=f"one of {', '.join(sources)}",
            got=" and ".join(named),
            code="conflicting_options",
        )
    if json_schema is not None:
        return Constraint("json_schema", _schema(json_schema))
    if choices is not None:
        return Constraint("choices", _choices(choices))
    for kind in ("regex", "grammar"):
        value = sources[kind]
        if value is not None:
            if not isinstance(value, str) or not value:
                raise InputError(
                    argument=kind,
                    expected="a string of at least one character",
                    got=type(value).__name__,
                    code="wrong_type",
                )
            return Constraint("regex" if kind == "regex" else "grammar", value)
    return None


def _schema(source: Any) -> str:
    """Return a schema as JSON text. Properties keep their order."""
    try:
        schema = json.loads(source) if isinstance(source, (str, bytes)) else source
        if isinstance(schema, Mapping):
            schema = dict(schema)
        elif not isinstance(schema, bool):
            raise ConstraintError(
                argument="json_schema",
                expected="an object, true or false",
                got=type(schema).__name__,
                code="wrong_type",
            )
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConstraintError(f"not valid JSON: {error}", argument="json_schema", code="invalid_json") from error


def _choices(choices: Any) -> str:
    if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence):
        raise InputError(
            argument="choices", expected="a list of strings", got=type(choices).__name__, code="wrong_type"
        )
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise InputError(
                argument="choices", expected="strings of at least one character", got=repr(choice), code="wrong_type"
            )
    if not choices:
        raise InputError(argument="choices", expected="at least one string", got="none", code="empty")
    return json.dumps(list(choices), ensure_ascii=False)


def without_excluded_integers(schema: Any) -> Any:
    """Return the schema with `exclusiveMinimum: 5` as `minimum: 5.000000001`, and `exclusiveMaximum: -5` likewise.

    llguidance 1.9.1 wrongly allows 5 for numbers above 5 and at most 5.5; it is right about inclusive bounds.
    `exclusiveMaximum: 5` stays: llguidance never allows 5 there, and with 4.999999999 it refuses 4.9.
    """
    if isinstance(schema, list):
        return [without_excluded_integers(inside) for inside in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            result[key] = {name: without_excluded_integers(inside) for name, inside in value.items()}
        else:
            result[key] = value if key in _DATA else without_excluded_integers(value)
    for key, bound, sign in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        numbers = [result[name] for name in (key, bound) if name in result]
        if key not in result or any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in numbers):
            continue
        excluded, *bounds = numbers
        if 0 <= sign * excluded <= 1e6 and excluded == int(excluded):
            del result[key]
            bounds.append(round(excluded + sign * EXCLUSIVE_BOUND_STEP, 9))
            result[bound] = max(bounds) if sign > 0 else min(bounds)
    return result


def compile_error(constraint: Constraint, message: str) -> ConstraintError:
    """Return the error for a message of llguidance's compiler."""
    message, code, hint = shorten(message), "invalid", ""
    if constraint.kind == "json_schema":
        message += _unsupported_paths(constraint.source, message)
        if "Default retriever" in message:
            code, hint = "external_reference", "A $ref may point only into the schema itself."
    if message.startswith("NoExtension"):  # the parser stopped before the first byte
        message, code = "no text satisfies it", "unsatisfiable"
    return ConstraintError(message, argument=constraint.kind, hint=hint, code=code)


def shorten(message: str) -> str:
    """Return a message of llguidance without its parser's state: at most 6 lines of 160 characters."""
    return "\n".join(line[:160] for line in message.split("\n<")[0].rstrip().splitlines()[:6])


def _unsupported_paths(source: str, message: str) -> str:
    """Return where in a schema the unsupported keywords of a message are."""
    match = re.match(r"Unimplemented keys: (\[.*?\])", message)
    if not match:
        return ""
    keys = set(json.loads(match[1]))
    paths = [path for path, key in _keys(json.loads(source), "#") if key in keys]
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return f" at {', '.join(paths[:5])}{more}" if paths else ""


def _keys(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every key of a schema with its path."""
    if isinstance(schema, dict):
        for key, inside in schema.items():
            yield f"{path}/{key}", key
            yield from _keys(inside, f"{path}/{key}")
    elif isinstance(schema, list):
        for at, inside in enumerate(schema):
            yield from _keys(inside, f"{path}/{at}")


Mask = np.ndarray[Any, np.dtype[np.uint32]]
MAX_CACHED_CONSTRAINTS = 64
MAX_CACHED_SOURCE_CHARS = 128 << 10  # of all of them; compiled, a character takes some 200 bytes
# The layout of json.dumps. With free white space fewer tokens are forced, and small models tend to indent for ever.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
EXACT = {"lenient": False, "coerce_one_of": False}  # unsupported keywords are errors
MAX_LEXER_STATES = 50_000  # 1 to 2 kB each. llguidance bounds compilation, and a step to some 20 ms, by itself


class GrammarMatcher:
    """The state of one generation in its grammar: the allowed tokens, the forced tokens, and whether it is complete."""

    def __init__(self, matcher: llguidance.LLMatcher, known: Mask, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self._known = known  # bits of the tokens that exist
        self._ends = ends
        self._closed = False  # by an end-of-text token

    @property
    def ended(self) -> bool:
        """Return whether only an end-of-text token may follow."""
        return self._closed or bool(self._matcher.is_stopped())

    def mask(self) -> Mask:
        """Return a bit for each token that may come next, 32 to a word, the lowest first."""
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)[: len(self._known)]
        self._check()
        allowed = words & self._known
        if not allowed.any():
            raise ConstraintError(
                "the constraint requires text that no token of the vocabulary can start", code="no_token"
            )
        return allowed

    def forced(self) -> tuple[int, ...]:
        """Return the tokens that must come next: each is the only one in its mask."""
        return () if self._closed else tuple(self._matcher.compute_ff_tokens())

    def take(self, token: int) -> None:
        """Advance by the next token of the text."""
        if not self._try(token):
            raise ConstraintError(f"the constraint does not allow token {token} here", code="token_not_allowed")

    def _check(self) -> None:
        """Raise an error of llguidance, which otherwise allows only the end from then on."""
        if self._matcher.is_error():
            raise ConstraintError(
                f"the constraint is too complex to continue: {shorten(self._matcher.get_error())}",
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
        """Return the mask after each drafted token, up to the first that is not allowed or completes the text."""
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
        """Go back by `count` tokens."""
        if count and self._closed:
            self._closed = False
            count -= 1
        if count and not self._matcher.rollback(count):
            raise ConstraintError(f"cannot rewind {count} tokens: {shorten(self._matcher.get_error())}")

    def copy(self) -> GrammarMatcher:
        """Return a second matcher in the same state."""
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
        """Return a matcher for a new answer."""
        with self._lock:
            matcher = self._compiled.pop(constraint, None) or self._compile(constraint)
            self._compiled[constraint] = matcher  # the latest used is the last
            while len(self._compiled) > 1 and not self._fit():
                self._compiled.popitem(last=False)
            return GrammarMatcher(matcher.deep_copy(), self._known, self.ends)

    def check(self, constraint: Constraint) -> None:
        """Raise ConstraintError if a constraint does not compile. The result is not cached."""
        with self._lock:
            self._compile(constraint)

    def _fit(self) -> bool:
        """Return whether the cache is within its limits. Untrusted requests may all have different constraints."""
        characters = sum(len(constraint.source) for constraint in self._compiled)
        return len(self._compiled) <= MAX_CACHED_CONSTRAINTS and characters <= MAX_CACHED_SOURCE_CHARS

    def _compile(self, constraint: Constraint) -> llguidance.LLMatcher:
        import llguidance

        limits = llguidance.LLParserLimits(max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)
        grammar = _grammar(constraint)
        matcher = llguidance.LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
        # The first mask shows whether any text satisfies it. It may have one word more than the vocabulary.
        first = np.frombuffer(matcher.compute_bitmask(), np.uint32)[: len(self._closing)]
        if matcher.is_error():
            raise compile_error(constraint, matcher.get_error())
        if matcher.is_accepting() and not (first & ~self._closing).any():
            raise ConstraintError("only the empty string satisfies it", argument=constraint.kind, code="empty_text")
        return matcher


def check_alone(constraint: Constraint) -> None:
    """Raise ConstraintError if a constraint is invalid for every model, before one is loaded."""
    llguidance = _package()
    if message := llguidance.LLMatcher.validate_grammar(_grammar(constraint)):
        raise compile_error(constraint, message)


def _package() -> ModuleType:
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedError(
            "constraints require the llguidance package", hint="Run pip install 'webpte[llm]'.", code="missing_package"
        ) from error
    return llguidance


def _grammar(constraint: Constraint) -> str:
    """Return a constraint as a grammar of llguidance."""
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
        raise compile_error(constraint, str(error)) from error


def _schema_grammar(text: str) -> str:
    import llguidance

    document = json.loads(text)
    schema = json.dumps(without_excluded_integers({} if document is True else document), ensure_ascii=False)
    return llguidance.LLMatcher.grammar_from_json_schema(schema, LAYOUT, EXACT)  # type: ignore[arg-type]


def _alternatives(choices: Sequence[str]) -> str:
    return "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


class _Words:
    """The vocabulary for llguidance's `TokenizerWrapper`, which defines these attributes and the call."""

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
        if not ends:  # llguidance requires one: a number after the vocabulary, which no mask includes
            self.ends = frozenset((len(self.tokens),))
            self.tokens.append(b"<end>")
        self.eos_token_id = min(self.ends)
        self.special_token_ids = sorted((special | self.ends) & set(range(len(self.tokens))))

    def __call__(self, data: bytes) -> list[int]:
        """Return tokens whose bytes are exactly `data`.

        If the tokenizer adds a space, or has more tokens than the model, take the longest token at each position.
        """
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
