"""Evaluate the predictions of a program on a text, alone or against a reference program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...llm import LLM, Tokenizer
from ...llm.metadata import tokenizer_beside
from ...llm.prompts import SpecialTokens, encode_prompt, read_special_tokens
from ...llm.settings import LARGEST, integer
from ...progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ...runtime.checks import wrong_argument
from ...sources import beside
from .measures import (
    MAX_WINDOW_TOKENS,
    Estimate,
    ModelComparison,
    Predictions,
    Quality,
    TextTokens,
    TextWindow,
    chunks,
    rolling_windows,
    sliding_windows,
)
from .texts import evaluation_text

STAGE = "evaluate"
CHUNK_TOKENS = 32  # whose logits are read at once: 64 MB for two models with vocabularies of 262,144


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    tokens: int  # predicted
    windows: int
    context: int  # tokens fed in the longest window
    perplexity: Estimate
    against: Quality | None  # the difference from the reference program


def evaluate(
    llm: LLM,
    text: str | None = None,
    *,
    against: LLM | None = None,
    tokens: int | None = None,
    stride: int | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Evaluation:
    """Return how well a model predicts the first `tokens` tokens of a text, by default all of the built-in one.

    Every token is predicted once, in windows of the model's context, at most 1,024 tokens, that do not overlap: the
    rolling log likelihood of lm-evaluation-harness. With `stride`, each window predicts that many tokens, and starts
    with known tokens of the window before. `against` is the reference model, such as one in f32, with the same
    tokenizer.
    """
    _check(llm, "llm")
    progress = cancellable(progress, cancel)
    if stride is not None:
        stride = integer("stride", stride, 1, MAX_WINDOW_TOKENS - 1)
    known = text_tokens(llm.tokenizer, llm.text_model.special_tokens, _text(text))
    if tokens is not None:
        known = known.first(integer("tokens", tokens, 1, LARGEST))
    if against is not None:
        _check(against, "against")
        _check_same_tokenizer(llm, against, _text(text))
    context = min(each.capacity for each in (llm, against) if each is not None)
    windows = rolling_windows(known, context) if stride is None else sliding_windows(known, context, stride)
    perplexity, quality = _measure(llm, against, windows, progress)
    scored = sum(window.scored for window in windows)
    longest = max(len(window.tokens) - 1 for window in windows)
    return Evaluation(scored, len(windows), longest, perplexity, quality)


def text_tokens(tokenizer: Tokenizer, special: SpecialTokens, text: str) -> TextTokens:
    """Return a text as a model reads it."""
    plain, full = tokenizer.encode(text), encode_prompt(tokenizer, special, text)
    names = (special.texts.get("bos_token"), special.texts.get("eos_token"))
    numbers = (tokenizer.token_id(name) for name in names if name is not None)
    start = next((number for number in numbers if number is not None), None)
    return TextTokens(plain, full[: len(full) - len(plain)], start)


def tokens_beside(program: Path, text: str, bos_id: int | None, eos_ids: Sequence[int]) -> TextTokens:
    """Return a text as the model of a program reads it, by the files beside the program."""
    path = tokenizer_beside(program)
    if path is None:
        raise InputError(f"there is no tokenizer.json beside {program}", code="no_tokenizer")
    tokenizer = Tokenizer.load(path)
    special = read_special_tokens(beside(program, "tokenizer_config.json"), tokenizer, bos_id, eos_ids)
    return text_tokens(tokenizer, special, text)


def _measure(
    llm: LLM, against: LLM | None, windows: Sequence[TextWindow], progress: OnProgress
) -> tuple[Estimate, Quality | None]:
    total, done = sum(window.scored for window in windows), 0
    alone, both = Predictions(), ModelComparison()
    progress(Progress(STAGE, 0, total, "tokens"))
    for window in windows:
        with llm.sequence() as own, (against or llm).sequence() as other:
            for fed, targets, _ in chunks(window, CHUNK_TOKENS):
                every = len(targets) > 0
                logits = own.logits(fed, every=every)
                expected = other.logits(fed, every=every) if against is not None else None
                if not every:
                    continue
                if expected is None:
                    alone.add(logits, targets)
                else:
                    both.add(expected, logits, targets)
                done += len(targets)
                progress(Progress(STAGE, done, total, "tokens"))
    if against is None:
        return alone.perplexity(), None
    return both.model.perplexity(), both.result()


def _text(text: object) -> str:
    if text is None:
        return evaluation_text()
    if not isinstance(text, str):
        raise wrong_argument("text", "a str, or None for the built-in text", text)
    if not text:
        raise InputError(argument="text", expected="at least one character", got="an empty string", code="empty_text")
    return text


def _check(llm: object, name: str) -> None:
    if not isinstance(llm, LLM):
        raise wrong_argument(name, "a webpte.llm.LLM", llm)


def _check_same_tokenizer(llm: LLM, against: LLM, text: str) -> None:
    """Raise an InputError unless both models have the same tokens: only then can distributions be compared."""
    names = f"{against.path or 'against'} and {llm.path or 'the program'}"
    if llm.vocabulary != against.vocabulary:
        raise InputError(
            f"{names} cannot be compared: their vocabularies have {against.vocabulary:,} and {llm.vocabulary:,} tokens",
            code="other_tokenizer",
        )
    for number in range(llm.vocabulary):
        theirs, ours = against.tokenizer.token_text(number), llm.tokenizer.token_text(number)
        if theirs != ours:
            raise InputError(
                f"{names} cannot be compared: token {number} is {theirs!r} in one and {ours!r} in the other",
                code="other_tokenizer",
            )
    own, other = (text_tokens(each.tokenizer, each.text_model.special_tokens, text) for each in (llm, against))
    if own != other:
        raise InputError(
            f"{names} cannot be compared: their tokenizers split the text differently, into "
            f"{len(other.tokens):,} and {len(own.tokens):,} tokens",
            code="other_tokenizer",
        )
