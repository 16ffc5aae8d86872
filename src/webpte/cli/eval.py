"""Measure how well a language model predicts a text, alone or against a reference model."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, TypedDict

from ..errors import InputError
from ..llm import LLM
from ..llm.options import KvCache
from ..measure.evaluation.measures import Estimate
from ..measure.evaluation.programs import Evaluation, evaluate
from ..progress import OnProgress
from ..sources import is_checkpoint, is_remote
from ..text import plural
from ..typing import JsonNumber
from .generate import read_stdin
from .generation_options import add_kv_cache, add_tokenizer
from .output import print_json
from .parsing import add_json, add_program, check_input, integer
from .terminal import Column, OutputTable, Page, bars, open_page

BUILT_IN = "the built-in text"


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser, model=True)
    parser.add_argument("--text", metavar="FILE", help="the text to predict, in UTF-8; - reads stdin (a built-in text)")
    parser.add_argument(
        "--against", metavar="PTE", help="a reference program with the same tokenizer, such as one in f32"
    )
    parser.add_argument("--tokens", type=integer(2), metavar="N", help="use only the first N tokens of the text (all)")
    parser.add_argument(
        "--stride",
        type=integer(1),
        metavar="N",
        help="overlap windows, each of which predicts N tokens (no overlap, as in lm-evaluation-harness)",
    )
    add_tokenizer(parser)
    add_kv_cache(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    text = _text(arguments.text)
    check_input("--against", None if is_remote(arguments.against) else arguments.against)
    with ExitStack() as opened, bars() as progress:
        llm = opened.enter_context(_load(arguments.file, arguments, progress, arguments.kv_cache))
        against = None
        if arguments.against is not None:
            against = opened.enter_context(_load(arguments.against, arguments, progress, "f32"))
        evaluation = evaluate(
            llm, text, against=against, tokens=arguments.tokens, stride=arguments.stride, progress=progress
        )
    if arguments.json:
        print_json(_report(arguments, evaluation))
    else:
        _show(arguments, evaluation, open_page())


def _load(path: str, arguments: argparse.Namespace, progress: OnProgress, kv_cache: KvCache) -> LLM:
    # One sequence: the windows of a text are evaluated one after the other, in full passes.
    data = arguments.data if path == arguments.file else ()
    return LLM.load(
        path,
        arguments.tokenizer,
        data,
        max_context=arguments.max_context if path == arguments.file or is_checkpoint(path) or is_remote(path) else None,
        kv_cache=kv_cache,
        max_sequences=1,
        progress=progress,
    )


def _text(name: str | None) -> str | None:
    if name is None:
        return None
    check_input("--text", None if name == "-" else name)
    try:
        text = read_stdin() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {name}: {error}", argument="--text", hint="The file must be UTF-8.", code="unreadable"
        ) from error
    if not text:
        raise InputError(
            argument="--text", expected="a text to predict", got=f"an empty file ({name})", code="empty_text"
        )
    return text


class EstimateReport(TypedDict):
    """A mean over tokens."""

    value: JsonNumber
    error: Annotated[JsonNumber, "its standard error, as if tokens were drawn one by one"]


class ReferenceReport(TypedDict):
    """The program against another one."""

    file: str
    perplexity: Annotated[EstimateReport, "of the other program"]
    kl: Annotated[EstimateReport, "KL(other ‖ program) of the next token's distribution, nats a token"]
    agreement: Annotated[EstimateReport, "share of tokens where both give the same most probable token"]


class EvaluationReport(TypedDict):
    """How well a program predicts a text."""

    file: str
    text: Annotated[str | None, "null is the built-in one"]
    tokens: Annotated[int, "that were predicted"]
    windows: Annotated[int, "in which they were"]
    stride: Annotated[int | None, "tokens that each window predicts, if windows overlap"]
    context: Annotated[int, "tokens fed in the longest window"]
    perplexity: Annotated[EstimateReport, "of the program"]
    against: ReferenceReport | None


def _report(arguments: argparse.Namespace, evaluation: Evaluation) -> EvaluationReport:
    other = evaluation.against
    against: ReferenceReport | None = other and {
        "file": arguments.against,
        "perplexity": _estimate(other.reference_perplexity),
        "kl": _estimate(other.kl),
        "agreement": _estimate(other.agreement),
    }
    return {
        "file": arguments.file,
        "text": arguments.text,
        "tokens": evaluation.tokens,
        "windows": evaluation.windows,
        "stride": arguments.stride,
        "context": evaluation.context,
        "perplexity": _estimate(evaluation.perplexity),
        "against": against,
    }


def _estimate(estimate: Estimate) -> EstimateReport:
    return {"value": estimate.value, "error": estimate.error}


def _show(arguments: argparse.Namespace, evaluation: Evaluation, page: Page) -> None:
    overlap = "" if arguments.stride is None else f", stride {arguments.stride:,}"
    page.text(
        f"{evaluation.tokens:,} tokens of {arguments.text or BUILT_IN}, "
        f"in {plural(evaluation.windows, 'window')} of up to {evaluation.context:,}{overlap}",
        style="bold",
    )
    table = OutputTable(
        [Column("measure"), Column("value", number=True), Column("±", number=True), Column("of", prose=True)]
    )
    table.add("perplexity", *_cells(evaluation.perplexity, 3), arguments.file)
    if (other := evaluation.against) is not None:
        table.add("perplexity", *_cells(other.reference_perplexity, 3), arguments.against)
        table.add("KL divergence", *_cells(other.kl, 5), "of the first from the second, in nats per token")
        table.add("agreement", *_cells(other.agreement, 4), "share of positions with the same most likely token")
    page.table(table)


def _cells(estimate: Estimate, digits: int) -> tuple[str, str]:
    return f"{estimate.value:.{digits}f}", f"{estimate.error:.{digits}f}"
