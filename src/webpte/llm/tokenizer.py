"""Text to tokens and back, from a `tokenizer.json` or a file of another format."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import InputError, UnsupportedError
from .tokenizer_file import copy_tokenizer, load_tokenizer, raise_typed
from .tokenizer_formats import byte_alphabet

if TYPE_CHECKING:
    import tokenizers


LONG_TEXT_CHARS = 2048  # from which on the GIL is released while a text is encoded
MARK, SEPARATOR = "\ufdd0", "\ufdd1"  # noncharacters, which Unicode reserves for a program's own use
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_UNUSED_NUMBERS = 1 << 17  # of tokens
MAX_CHARACTER_TOKENS = 4  # a character has at most 4 bytes in UTF-8
MAX_UNFINISHED_TOKENS = 64  # that a stream waits with for the end of a character
NORMALIZED_BYTES = 4  # of a text, at most, that a normalizer makes one byte of


_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Parts of a decoder that change nothing, or only the first space of a whole text.
_NEUTRAL = {"Fuse", "Strip"}


def bytes_of_tokens(inner: tokenizers.Tokenizer, count: int) -> list[bytes | None]:
    """Return the bytes of tokens 0 to `count` in a text; None for a number without a token."""
    read = _reader(list(_parts(json.loads(inner.decoder.__getstate__()) if inner.decoder is not None else None)))
    texts = (inner.id_to_token(number) for number in range(count))
    return [None if text is None else read(text) for text in texts]


def _parts(decoder: Any) -> Iterator[dict[str, Any]]:
    """Yield the decoders of a sequence of decoders, in order."""
    if isinstance(decoder, dict):
        if decoder.get("type") == "Sequence":
            for inside in decoder.get("decoders") or ():
                yield from _parts(inside)
        else:
            yield decoder


def _reader(parts: list[dict[str, Any]]) -> Callable[[str], bytes]:
    """Return the function that converts a token, as the vocabulary spells it, to bytes."""
    kinds = [str(part.get("type")) for part in parts]
    if kinds == ["ByteLevel"]:
        return _from_alphabet
    replaced, fallback = [], False
    for part, kind in zip(parts, kinds, strict=True):
        pattern = part.get("pattern")
        if kind == "Replace" and isinstance(pattern, dict) and "String" in pattern:
            replaced.append((str(pattern["String"]), str(part.get("content", ""))))
        elif kind == "Metaspace":
            replaced.append((str(part.get("replacement", "▁")), " "))
        elif kind == "ByteFallback":
            fallback = True
        elif kind not in _NEUTRAL:
            kinds = []
    if not kinds:  # spaces between tokens, or endings that depend on what follows: no bytes of a token's own
        named = ", ".join(str(part.get("type")) for part in parts) or "none"
        raise UnsupportedError(
            f"constraints: expected a byte-level, byte-fallback or Metaspace tokenizer, got the decoder: {named}",
            code="tokenizer",
        )
    return lambda text: _from_text(text, replaced, fallback)


def _from_text(text: str, replaced: list[tuple[str, str]], fallback: bool) -> bytes:
    if fallback and (match := _BYTE.fullmatch(text)):
        return bytes((int(match[1], 16),))
    for old, new in replaced:
        text = text.replace(old, new)
    return text.encode("utf-8", "surrogatepass")


def _from_alphabet(text: str) -> bytes:
    """Return the bytes of a byte-level token, one for each character. If it has other characters, it is UTF-8 text."""
    alphabet = byte_alphabet()
    codes = [alphabet.get(character) for character in text]
    return bytes(b for b in codes if b is not None) if None not in codes else text.encode("utf-8", "surrogatepass")


class Tokenizer:
    """A thin face on the `tokenizers` package."""

    def __init__(self, backend_tokenizer: tokenizers.Tokenizer) -> None:
        self.backend_tokenizer = backend_tokenizer

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, extra: str = "llm", max_tokens: int | None = None) -> Tokenizer:
        """Load a tokenizer. `extra` provides the package. `encode_cut` returns at most `max_tokens`."""
        return cls(load_tokenizer(path, extra, max_tokens))

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Return the tokens of a text.

        With `add_special`, the tokenizer's post-processor adds what it adds to every text. With `parse_special`,
        special tokens spelled in the text, such as <|im_end|>, are recognized; otherwise they are ordinary text.
        """
        if parse_special or not self._spells_special(text):
            return list(self._encoding(text, add_special).ids)
        return list(self._plain._encoding(text.replace(MARK, "").replace(SEPARATOR, ""), add_special).ids)

    @cached_property
    def max_token_bytes(self) -> int:
        """Return the maximum bytes of a text that one token stands for."""
        longest = max((len(token.encode()) for token in self.backend_tokenizer.get_vocab()), default=1)
        return longest * (NORMALIZED_BYTES if self.backend_tokenizer.normalizer is not None else 1)

    def encode_marked(self, text: str) -> list[int]:
        """Return the tokens of a text whose special tokens are recognized, except those that `mark_special_tokens` has
        marked: they are encoded as ordinary text."""
        special_tokens = [self._special_texts[special] for special in self._special_pattern.findall(text)]
        plain = self._special_pattern.sub(SEPARATOR, text).replace(MARK, "")
        ids = self._plain._encoding(plain, add_special=False).ids
        separator, specials = self._plain.token_id(SEPARATOR), iter(special_tokens)
        return [next(specials) if token == separator else token for token in ids]

    def mark_special_tokens(self, value: Any) -> tuple[Any, bool]:
        """Return strings, and mappings and sequences of them, with a mark in every special token that they contain or
        could form with their neighbors; and whether there was any."""
        if isinstance(value, str):
            marked = self._mark(value)
            return marked, marked != value
        if isinstance(value, Mapping):
            names = {key: self._mark_key(key) for key in value}
            items = {key: self.mark_special_tokens(each) for key, each in value.items()}
            changed = any(changed for _, changed in items.values()) or any(key != new for key, new in names.items())
            return {names[key]: each for key, (each, _) in items.items()}, changed
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            marked_items = [self.mark_special_tokens(each) for each in value]
            return [each for each, _ in marked_items], any(changed for _, changed in marked_items)
        return value, False

    def _mark_key(self, key: Any) -> Any:
        """Return a key of a mapping, marked. Names of fields, which templates look up, spell no special token."""
        return key if not isinstance(key, str) or _NAME.fullmatch(key) else self._mark(key)

    def _mark(self, text: str) -> str:
        if MARK in text or SEPARATOR in text:  # neither is a character: no text has them
            text = text.replace(MARK, "").replace(SEPARATOR, "")
        normalized = self._normalized(text)
        if normalized != text and self._spells_special(normalized):  # encode_marked takes only unnormalized spellings
            text += MARK
        while self._special_texts and self._special_pattern.search(text):  # a mark in one may leave another
            text = self._special_pattern.sub(lambda match: match[0][0] + MARK + match[0][1:], text)
        beginnings, ends, longest = self._special_edges
        if any(each[-length:] in beginnings for length in range(1, longest) for each in (text, normalized)):
            text += MARK
        if any(each[:length] in ends for length in range(1, longest) for each in (text, normalized)):
            text = MARK + text
        return text

    def _spells_special(self, text: str) -> bool:
        """Return whether a special token may be recognized in a text."""
        if not self._special_texts:
            return False
        return any(self._special_pattern.search(each) for each in {text, self._normalized(text)})

    def _normalized(self, text: str) -> str:
        """Return a text as the tokenizer looks for special tokens in it. Most tokenizers look in the text itself."""
        return str(self.backend_tokenizer.normalizer.normalize_str(text)) if self._normalizes_specials else text

    @cached_property
    def _normalizes_specials(self) -> bool:
        if self.backend_tokenizer.normalizer is None:
            return False
        added = self.backend_tokenizer.get_added_tokens_decoder().values()
        return any(token.special and token.normalized for token in added)

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        """Return the pattern of special tokens without a mark. In one of a single character the mark follows it."""
        texts = sorted(self._special_texts, key=len, reverse=True)
        return re.compile("|".join(re.escape(text) + (f"(?!{MARK})" if len(text) == 1 else "") for text in texts))

    @cached_property
    def _special_edges(self) -> tuple[frozenset[str], frozenset[str], int]:
        """Return the proper beginnings and ends of special tokens, and the length of the longest token."""
        cuts = [(text, at) for text in self._special_texts for at in range(1, len(text))]
        longest = max(map(len, self._special_texts), default=0)
        return frozenset(text[:at] for text, at in cuts), frozenset(text[at:] for text, at in cuts), longest

    @cached_property
    def _special_texts(self) -> dict[str, int]:
        added = self.backend_tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special and token.content}

    @cached_property
    def _plain(self) -> Tokenizer:
        """Return the same tokenizer, to which special tokens are text. SEPARATOR stands for those that are not."""
        from tokenizers import AddedToken

        inner = copy_tokenizer(self.backend_tokenizer)
        inner.encode_special_tokens = True
        # The package numbers new tokens by how many there are. Where numbers are left out, those would be taken.
        unused = self.size - inner.get_vocab_size()
        if unused > MAX_UNUSED_NUMBERS:
            raise UnsupportedError(
                f"the tokenizer's vocabulary leaves {unused} numbers unused; the limit is {MAX_UNUSED_NUMBERS}",
                code="vocabulary",
            )
        fillers = [f"{MARK}{number}" for number in range(unused)]  # in no text: marks are taken out before
        inner.add_tokens([AddedToken(text, normalized=False, special=False) for text in [*fillers, SEPARATOR]])
        return Tokenizer(inner)

    def encode_cut(self, text: str) -> tuple[list[int], int]:
        """Return the tokens of a text with what is added to every text, truncated by `load`; and their full number."""
        encoding = self._encoding(text, add_special=True)
        rest = sum(len(part) - sum(part.special_tokens_mask) for part in encoding.overflowing)
        return list(encoding.ids), len(encoding) + (max(rest, 1) if encoding.overflowing else 0)

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Return the tokens of two texts with what is added to every pair, truncated by `load`."""
        try:
            (first + second).encode()
            pairs = [(first, second)]  # a batch releases the GIL
            return list(self.backend_tokenizer.encode_batch_fast(pairs, add_special_tokens=True)[0].ids)
        except UnicodeEncodeError as error:
            raise InputError(f"the texts cannot be written as UTF-8: {error}", code="invalid_utf8") from error
        except BaseException as error:
            raise_typed(error, "the tokenizer cannot encode the texts", code="encode")

    def _encoding(self, text: str, add_special: bool) -> tokenizers.Encoding:
        try:
            text.encode()  # half of a surrogate pair is not valid
            if len(text) > LONG_TEXT_CHARS:  # a batch releases the GIL; of one, it gives the same tokens
                return self.backend_tokenizer.encode_batch_fast([text], add_special_tokens=add_special)[0]
            return self.backend_tokenizer.encode(text, add_special_tokens=add_special)
        except UnicodeEncodeError as error:
            raise InputError(f"the text cannot be written as UTF-8: {error}", code="invalid_utf8") from error
        except BaseException as error:
            raise_typed(error, "the tokenizer cannot encode the text", code="encode")

    def decode(self, tokens: Iterable[int], *, specials: bool = False) -> str:
        try:
            return str(self.backend_tokenizer.decode(list(tokens), skip_special_tokens=not specials))
        except BaseException as error:
            raise_typed(error, "the tokenizer cannot decode the tokens", code="decode")

    @property
    def size(self) -> int:
        """Return one more than the highest number of a token."""
        return 1 + max(self.backend_tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def token_id(self, token: str) -> int | None:
        return self.backend_tokenizer.token_to_id(token)

    def token_text(self, number: int | None) -> str | None:
        """Return a token as the vocabulary spells it."""
        return None if number is None or number < 0 else self.backend_tokenizer.id_to_token(number)

    def token_bytes(self, count: int) -> list[bytes | None]:
        """Return the bytes of each of the first `count` tokens; None for a number without a token."""
        return bytes_of_tokens(self.backend_tokenizer, count)

    @property
    def special_ids(self) -> frozenset[int]:
        """Return the special tokens, such as the one that ends a text."""
        added = self.backend_tokenizer.get_added_tokens_decoder()
        return frozenset(number for number, token in added.items() if token.special)


class TextStream:
    """Turns tokens into text piece by piece. A character that spans tokens comes out when it is whole."""

    def __init__(self, tokenizer: Tokenizer, *, specials: bool = False) -> None:
        self._tokenizer = tokenizer
        self._specials = specials  # whether special tokens are written, too
        self._tokens: list[int] = []
        self._start = 0  # tokens before it no longer influence how later ones read
        self._read = 0  # tokens whose text was given out

    def push(self, token: int) -> str:
        """Return the text that this token completes; empty while a character is unfinished."""
        self._tokens.append(token)
        before = self._decode(self._tokens[self._start : self._read])
        now = self._decode(self._tokens[self._start :])
        if now.endswith("\ufffd"):
            return self._settle(before, now) if len(self._tokens) - self._read > MAX_UNFINISHED_TOKENS else ""
        self._start, self._read = self._read, len(self._tokens)
        return now[len(before) :]

    def _settle(self, before: str, now: str) -> str:
        """Return the text of unfinished tokens without the last, which alone can still become a character. Otherwise a
        model that writes invalid bytes would have all of them decoded again for each token."""
        end = len(self._tokens) - MAX_CHARACTER_TOKENS
        for read in range(end, end - MAX_CHARACTER_TOKENS, -1):  # a cut may be inside of a character
            settled = self._decode(self._tokens[self._start : read])
            if now.startswith(settled):
                self._start, self._read = self._read, read
                return settled[len(before) :]
        return self.flush()

    def flush(self) -> str:
        """Return the rest at the end, with replacement characters for bytes that never became text."""
        before = self._decode(self._tokens[self._start : self._read])
        now = self._decode(self._tokens[self._start :])
        self._start = self._read = len(self._tokens)
        return now[len(before) :]

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, specials=self._specials)
