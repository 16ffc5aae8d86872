"""Measure how well a language model predicts a text, alone or against the model it was made of."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..llm import LLM
from ..progress import OnProgress
from ..tools.evaluation.measures import Estimate
from ..tools.evaluation.programs import Evaluation, evaluate
from .generate import read_stdin
from .output import print_json
from .parsing import check_input, whole
from .terminal import Column, OutputTable, Page, bars, open_page

BUILT_IN = "the built-in text"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    parser.add_argument("--text", metavar="FILE", help="what to predict, in UTF-8; - reads stdin (a built-in text)")
    parser.add_argument(
        "--against", metavar="PTE", help="a program with the same tokenizer to be equalled, such as one in f32"
    )
    parser.add_argument("--tokens", type=whole(2), metavar="N", help="the first N tokens of the text (all)")
    parser.add_argument(
        "--stride",
        type=whole(1),
        metavar="N",
        help="windows overlap, and each predicts N tokens (they do not, as in lm-evaluation-harness)",
    )
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json, if it is not beside the program")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> None:
    text = _text(arguments.text)
    check_input("--against", arguments.against)
    with ExitStack() as opened, bars() as progress:
        llm = opened.enter_context(_load(arguments.file, arguments, progress))
        against = None
        if arguments.against is not None:
            against = opened.enter_context(_load(arguments.against, arguments, progress))
        found = evaluate(
            llm, text, against=against, tokens=arguments.tokens, stride=arguments.stride, progress=progress
        )
    if arguments.json:
        print_json(_report(arguments, found))
    else:
        _show(arguments, found, open_page())


def _load(path: str, arguments: argparse.Namespace, progress: OnProgress) -> LLM:
    # One sequence: windows of a text come one after the other, each read in passes that are full.
    data = arguments.data if path == arguments.file else ()
    return LLM.load(path, arguments.tokenizer, data, max_sequences=1, progress=progress)


def _text(name: str | None) -> str | None:
    if name is None:
        return None
    check_input("--text", None if name == "-" else name)
    try:
        text = read_stdin() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--text {name} cannot be read: {error}. Name a file of text in UTF-8") from error
    if not text:
        raise InputError(f"--text {name} is empty: there is nothing to predict. Name a file with some text")
    return text


def _report(arguments: argparse.Namespace, found: Evaluation) -> dict[str, Any]:
    other = found.against
    against = other and {
        "file": arguments.against,
        "perplexity": other.reference_perplexity._asdict(),
        "kl": other.kl._asdict(),
        "agreement": other.agreement._asdict(),
    }
    return {
        "file": arguments.file,
        "text": arguments.text,
        "tokens": found.tokens,
        "windows": found.windows,
        "stride": arguments.stride,
        "context": found.context,
        "perplexity": found.perplexity._asdict(),
        "against": against,
    }


def _show(arguments: argparse.Namespace, found: Evaluation, page: Page) -> None:
    windows = "1 window" if found.windows == 1 else f"{found.windows} windows"
    overlap = "" if arguments.stride is None else f", stride {arguments.stride:,}"
    page.text(
        f"{found.tokens:,} tokens of {arguments.text or BUILT_IN}, in {windows} of up to {found.context:,}{overlap}",
        style="bold",
    )
    table = OutputTable(
        [Column("measure"), Column("value", number=True), Column("±", number=True), Column("of", prose=True)]
    )
    table.add("perplexity", *_cells(found.perplexity, 3), arguments.file)
    if (other := found.against) is not None:
        table.add("perplexity", *_cells(other.reference_perplexity, 3), arguments.against)
        table.add("KL divergence", *_cells(other.kl, 5), "how far the first is from the second, nats a token")
        table.add("agreement", *_cells(other.agreement, 4), "share of tokens where both find the same likeliest")
    page.table(table)


def _cells(found: Estimate, places: int) -> tuple[str, str]:
    return f"{found.value:.{places}f}", f"{found.error:.{places}f}"
