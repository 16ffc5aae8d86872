"""Which tokens may come next in an answer that follows a constraint. The `llguidance` package does the parsing."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnsupportedError
from .constraints import Constraint, brief, refusal, without_excluded_integers
from .errors import ConstraintError
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance

Mask = np.ndarray[Any, np.dtype[np.uint32]]
KEPT = 64  # compiled constraints
KEPT_CHARACTERS = 128 << 10  # of their sources together; compiled, a character takes some 200 bytes
# As json.dumps writes. With free white space nothing but words would be forced, and small models love to indent.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
EXACT = {"lenient": False, "coerce_one_of": False}  # what cannot be followed is refused, not ignored
MOST_STATES = 50_000  # of a lexer, 1 to 2 kB each. The package bounds the rest: compiling, and a step to some 20 ms


class Guide:
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

    def copy(self) -> Guide:
        """A second one, where this one is."""
        other = Guide(self._matcher.deep_copy(), self._known, self._ends)
        other._closed = self._closed
        return other


class Guides:
    """Makes guides for one model's vocabulary. Constraints are compiled once; it may be used from any thread."""

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

    def guide(self, constraint: Constraint) -> Guide:
        """A guide for an answer that begins now."""
        with self._lock:
            matcher = self._compiled.pop(constraint, None) or self._compile(constraint)
            self._compiled[constraint] = matcher  # the latest used is the last
            while len(self._compiled) > 1 and not self._fit():
                self._compiled.popitem(last=False)
            return Guide(matcher.deep_copy(), self._known, self.ends)

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
        first = np.frombuffer(matcher.compute_bitmask(), np.uint32)  # only now is known whether there is any text
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

    schema = json.dumps(without_excluded_integers(json.loads(text)), ensure_ascii=False)
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
