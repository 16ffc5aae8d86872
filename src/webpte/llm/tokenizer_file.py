"""Reads an untrusted `tokenizer.json`, or a file that is converted to one.

Files that would abort the tokenizers package are refused first.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import Error, FormatError, UnsupportedError
from .tokenizer_formats import as_tokenizer_json

if TYPE_CHECKING:
    import tokenizers

MAX_FILE_BYTES = 128 << 20  # bytes; the largest in use have some 35 MB
MAX_VOCABULARY = 1 << 22  # tokens; the largest in use have some 260,000
MAX_PIPELINE_PARTS = 64
MAX_GROWTH_FACTOR = 16  # of a text by all replacements together
MAX_ADDITION_CHARS = 1000  # characters that a part puts before every text
MAX_ADDED_PIECES = 32  # of what a post-processor adds, or repetitions of the text
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")


def load_tokenizer(path: str | os.PathLike[str], extra: str, max_tokens: int | None = None) -> tokenizers.Tokenizer:
    """Return the tokenizer of a file. `extra` is what to install where the package is absent."""
    name = os.fspath(path)
    _package(extra)  # before the file: without it, no file would do
    try:
        with open(name, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read {name}: {error}", code="not_a_tokenizer") from error
    return read_tokenizer(name, data, extra, max_tokens)


def _package(extra: str) -> ModuleType:
    try:
        import tokenizers
    except ImportError as error:
        raise UnsupportedError(
            "text requires the tokenizers package", hint=f"Run pip install 'webpte[{extra}]'.", code="missing_package"
        ) from error
    return tokenizers


def read_tokenizer(
    name: str, data: bytes, extra: str = "export", max_tokens: int | None = None
) -> tokenizers.Tokenizer:
    """Return the tokenizer of these bytes, without padding. `name` stands for them in errors.

    Texts are cut to `max_tokens` where that is given, and never by what the file says.
    """
    package = _package(extra)
    if len(data) > MAX_FILE_BYTES:
        raise FormatError(f"{name} has more than {MAX_FILE_BYTES} bytes, the limit for a tokenizer", code="too_large")
    try:
        data = as_tokenizer_json(name, data)
        _read_document(data)
        inner: tokenizers.Tokenizer = package.Tokenizer.from_str(data.decode())
        check_parts(inner)
        inner.no_padding()  # texts are encoded one by one
        inner.no_truncation()
        if max_tokens is not None:
            inner.enable_truncation(max_tokens)
    except FormatError as error:
        raise FormatError(str(error), argument=name, code=error.reason) from error
    except Error:
        raise
    except BaseException as error:  # the package raises plain Exception, and Rust's panics pass that by
        raise_typed(error, f"{name} is not a tokenizer.json", code="not_a_tokenizer")
    return inner


def copy_tokenizer(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    try:
        return type(inner).from_str(inner.to_str())
    except BaseException as error:
        raise_typed(error, "the tokenizer cannot be written and read again", code="not_a_tokenizer")


def raise_typed(error: BaseException, what: str, *, code: str) -> NoReturn:
    """Raise a FormatError for an error of the package, or for a panic of its Rust code. Other exceptions pass."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        raise FormatError(f"{what}: {error}", code=code) from error
    raise error


def check_parts(inner: Any) -> None:
    """Refuse a tokenizer whose parts can make far more of a text than there is."""
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        part = getattr(inner, name)
        if part is not None:
            _check(name, list(_flat(json.loads(part.__getstate__()))))


def _read_document(data: bytes) -> None:
    """Refuse what ends the process inside of the tokenizers package, where no exception would come of it.

    A panic while another is handled aborts, and so does memory that cannot be had. Mutants found three ways: numbers
    of tokens and the announced size of a table, for which memory is taken, and the prefix of subwords, which is cut
    off without a look.
    """
    document = json.loads(data, object_pairs_hook=_without_duplicates)
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise FormatError("the tokenizer is not a JSON object with a model", code="not_a_tokenizer")
    model = document["model"]
    vocabulary, added = model.get("vocab"), document.get("added_tokens")
    numbers = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    listed = [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    for number in (*numbers, *listed):
        if type(number) is not int or not 0 <= number < MAX_VOCABULARY:
            raise FormatError(
                f"token numbers of the tokenizer: expected 0 to {MAX_VOCABULARY - 1}, got {number!r:.40}",
                code="vocabulary",
            )
    if len({*numbers}) != len(numbers):
        raise FormatError("two tokens of the tokenizer's vocabulary have the same number", code="vocabulary")
    _check_merges(model)
    _check_charsmaps(document.get("normalizer"))


def _check_charsmaps(normalizer: Any) -> None:
    """Refuse tables of characters that announce more than they have: the package takes memory for it at once."""
    left = [normalizer]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            left += part.values()
            table = part.get("precompiled_charsmap")
            if isinstance(table, str):
                data = base64.b64decode(table)
                announced = int.from_bytes(data[:4], "little")
                if announced % 4 or announced > len(data) - 4:
                    raise FormatError(
                        f"the tokenizer's normalizer has a table of {len(data)} bytes whose header states {announced}",
                        code="charsmap",
                    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raise FormatError if a key is there twice: the package may use the other value."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise FormatError("the tokenizer has a JSON object with a key twice", code="duplicate_key")
    return document


def _check_merges(model: dict[str, Any]) -> None:
    """Refuse merges whose second part is shorter than the prefix of continuing subwords, which is cut off it."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not isinstance(prefix, str) or not prefix or not isinstance(merges, list):
        return
    size = len(prefix.encode("utf-8", "surrogatepass"))
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        second = str(parts[-1] if isinstance(parts, list) and parts else "").encode("utf-8", "surrogatepass")
        if len(second) < size or (second[size : size + 1] or b"a")[0] & 0xC0 == 0x80:  # or would cut a character
            raise FormatError(
                f"the tokenizer's merge {merge!r:.60} is shorter than the prefix of continuing subwords", code="merges"
            )


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    """Yield a part and the parts of a sequence."""
    if isinstance(part, dict):
        yield part
        for key in _LISTS:
            for inside in part.get(key) or ():
                yield from _flat(inside)


def _check(name: str, parts: list[dict[str, Any]]) -> None:
    growth = 1.0
    for part in parts:
        growth *= max(1.0, _growth(name, part))
        if part.get("type") == "TemplateProcessing":
            _check_template(part)
    if len(parts) > MAX_PIPELINE_PARTS or growth > MAX_GROWTH_FACTOR:
        raise FormatError(
            f"the tokenizer's {name} has {len(parts)} parts that can make a text {growth:g} times as long; "
            f"expected at most {MAX_PIPELINE_PARTS} parts and {MAX_GROWTH_FACTOR} times"
        )


def _growth(name: str, part: dict[str, Any]) -> float:
    """Return the factor by which a part can lengthen a text."""
    addition = part.get("prepend")
    if isinstance(addition, str) and len(addition) > MAX_ADDITION_CHARS:
        raise FormatError(
            f"the tokenizer's {name} prepends {len(addition)} characters; the limit is {MAX_ADDITION_CHARS}"
        )
    if part.get("type") != "Replace":
        return 1.0
    pattern, content = part.get("pattern") or {}, str(part.get("content", ""))
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    if literal == "":
        raise FormatError(
            f"the tokenizer's {name} replaces the empty string, which matches everywhere", code="empty_pattern"
        )
    return len(content) / len(literal) if literal else float(len(content))  # an expression may match one character


def _check_template(part: dict[str, Any]) -> None:
    tokens = part.get("special_tokens") or {}
    added = [len(token.get("ids", ())) for token in tokens.values()] if isinstance(tokens, dict) else []
    pieces = max((len(part.get(key) or ()) for key in ("single", "pair")), default=0)
    if pieces * max([1, *added]) > MAX_ADDED_PIECES:
        raise FormatError(
            f"the tokenizer's post_processor adds {pieces} pieces to every text; expected at most {MAX_ADDED_PIECES}"
        )
