"""Text to tokens and back, from a `tokenizer.json`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from ..errors import FormatError, InputError, UnsupportedError
from .token_bytes import bytes_of_tokens
from .tokenizer_checks import LARGEST_FILE, check_parts

if TYPE_CHECKING:
    import tokenizers


class Tokenizer:
    """A thin face on the `tokenizers` package."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, extra: str = "llm", most_tokens: int | None = None) -> Tokenizer:
        """`extra` is what to install where the package is absent. `encode_cut` gives at most `most_tokens`."""
        try:
            import tokenizers
        except ImportError as error:
            raise UnsupportedError(
                f"texts need the tokenizers package: pip install 'webpte[{extra}]'", code="missing_package"
            ) from error
        name = os.fspath(path)
        try:
            size = os.path.getsize(path)
            if size > LARGEST_FILE:
                raise FormatError(f"{name} has {size} bytes; the most for a tokenizer is {LARGEST_FILE}")
            inner = tokenizers.Tokenizer.from_file(name)
            check_parts(inner)
            inner.no_padding()  # answers are of one text, as long as it is
            inner.no_truncation()
            if most_tokens is not None:
                inner.enable_truncation(most_tokens)
        except FormatError:
            raise
        except BaseException as error:  # the package raises plain Exception, and Rust's panics pass that by
            _raise_typed(error, f"{name} is not a tokenizer.json", code="not_a_tokenizer")
        return cls(inner)

    def encode(self, text: str, *, specials: bool = False) -> list[int]:
        """Tokens of a text. Special tokens written in it, such as <|im_end|>, are recognised.

        With `specials` the tokenizer's own post-processor adds what it adds to every text.
        """
        return list(self._encoding(text, specials).ids)

    def encode_cut(self, text: str) -> tuple[list[int], int]:
        """Tokens of a text with what is added to every text, cut as `load` was told; and how many it has uncut."""
        found = self._encoding(text, specials=True)
        rest = sum(len(part) - sum(part.special_tokens_mask) for part in found.overflowing)
        return list(found.ids), len(found) + (max(rest, 1) if found.overflowing else 0)

    def _encoding(self, text: str, specials: bool) -> tokenizers.Encoding:
        try:
            text.encode()  # half of a surrogate pair is no text
            return self._inner.encode(text, add_special_tokens=specials)
        except UnicodeEncodeError as error:
            raise InputError(f"the text cannot be written as UTF-8: {error}", code="invalid_utf8") from error
        except BaseException as error:
            _raise_typed(error, "the tokenizer cannot encode the text", code="encode")

    def decode(self, tokens: Iterable[int], *, specials: bool = False) -> str:
        try:
            return str(self._inner.decode(list(tokens), skip_special_tokens=not specials))
        except BaseException as error:
            _raise_typed(error, "the tokenizer cannot decode the tokens", code="decode")

    @property
    def size(self) -> int:
        """One more than the highest number of a token."""
        return 1 + max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1)

    def token_id(self, token: str) -> int | None:
        return self._inner.token_to_id(token)

    def token_text(self, number: int | None) -> str | None:
        """A token as it is written in the vocabulary."""
        return None if number is None or number < 0 else self._inner.id_to_token(number)

    def token_bytes(self, count: int) -> list[bytes | None]:
        """What each of the first `count` tokens is in a text; None for a number that is no token."""
        return bytes_of_tokens(self._inner, count)

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are no part of a text, such as the one that ends it."""
        added = self._inner.get_added_tokens_decoder()
        return frozenset(number for number, token in added.items() if token.special)


def _raise_typed(error: BaseException, what: str, *, code: str) -> NoReturn:
    """An error of ours for the package's, and for a panic of its Rust code, which is no Exception. Others pass."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        raise FormatError(f"{what}: {error}", code=code) from error
    raise error


class TextStream:
    """Turns tokens into text piece by piece. A character that spans tokens comes out when it is whole."""

    def __init__(self, tokenizer: Tokenizer, *, specials: bool = False) -> None:
        self._tokenizer = tokenizer
        self._specials = specials  # whether special tokens are written, too
        self._tokens: list[int] = []
        self._start = 0  # tokens before it no longer influence how later ones read
        self._read = 0  # tokens whose text was given out

    def push(self, token: int) -> str:
        """The text that this token completes; empty while a character is unfinished."""
        self._tokens.append(token)
        before = self._decode(self._tokens[self._start : self._read])
        now = self._decode(self._tokens[self._start :])
        if now.endswith("\ufffd"):
            return ""
        self._start, self._read = self._read, len(self._tokens)
        return now[len(before) :]

    def flush(self) -> str:
        """What is left at the end, with replacement characters for bytes that never became text."""
        before = self._decode(self._tokens[self._start : self._read])
        now = self._decode(self._tokens[self._start :])
        self._start = self._read = len(self._tokens)
        return now[len(before) :]

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, specials=self._specials)
