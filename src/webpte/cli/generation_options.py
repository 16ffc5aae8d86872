"""Options of a language model that commands share, each checked when it is read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import Error, InputError
from ..llm.constraints import check_alone
from ..llm.settings import GenerateSettings, sampling_params_from

SETTINGS = (
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Which files to load, and how tokens are chosen."""
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json, if it is not beside the program")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--kv-cache", choices=("f32", "f16"), default="f32", help="f16 halves the cache's memory (f32)")
    add_sampling(parser)


def add_parse_special(parser: argparse._ActionsContainer) -> None:
    """How the prompt is read."""
    parser.add_argument(
        "--parse-special",
        action="store_true",
        help="recognise special tokens spelled in the prompt, such as <|im_end|> (they are text)",
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How tokens are chosen, and when an answer ends."""
    _add(parser, "max_new_tokens", int, 256, "N", "tokens to generate at most (256)")
    _add(parser, "temperature", float, 0.0, "T", "0 takes the likeliest token (0)")
    _add(parser, "top_k", int, 0, "K", "draw from the K likeliest tokens (0: all)")
    _add(parser, "top_p", float, 1.0, "P", "draw from the likeliest that sum to P (1)")
    _add(parser, "min_p", float, 0.0, "P", "and from those P times as likely as the likeliest (0)")
    _add(parser, "repetition_penalty", float, 1.0, "X", "above 1: what was there is less likely (1)")
    _add(parser, "presence_penalty", float, 0.0, "X", "taken from logits of tokens in the answer (0)")
    _add(parser, "frequency_penalty", float, 0.0, "X", "the same, as often as they are in it (0)")
    parser.add_argument(
        "--logit-bias", type=_bias, action="append", default=[], metavar="TOKEN=X", help="add X to a logit; repeatable"
    )
    _add(parser, "seed", int, 0, "N", "same seed, same text (0)")
    parser.add_argument(
        "--speculate", choices=("on", "off"), help="verify drafts out of the text so far: always, never (where it pays)"
    )
    parser.add_argument(
        "--stop",
        type=checked("stop", str),
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this text; repeatable",
    )


def _add(parser: argparse.ArgumentParser, name: str, kind: type, default: float, metavar: str, text: str) -> None:
    option = f"--{name.replace('_', '-')}"
    parser.add_argument(option, type=checked(name, kind), default=default, metavar=metavar, help=text)


def checked(name: str, kind: type) -> Callable[[str], Any]:
    """What reads an option's text as the setting of that name, and refuses what `generate` would refuse."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            number = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {number}") from None
        _refuse(**{name: value})
        return value

    return read


def _bias(text: str) -> tuple[int, float]:
    """`17=-2.5`: a token and what is added to its logit."""
    token, _, number = text.partition("=")
    try:
        found = int(token), float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOKEN=NUMBER") from None
    _refuse(logit_bias=dict([found]))
    return found


def _refuse(**given: Any) -> None:
    try:
        sampling_params_from(given)
    except Error as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def settings(arguments: argparse.Namespace, **more: Any) -> GenerateSettings:
    """What the options ask for, checked together: before a model is loaded."""
    speculate = {"on": True, "off": False}.get(arguments.speculate)
    given: dict[str, Any] = {name: getattr(arguments, name) for name in SETTINGS}
    given |= {"logit_bias": dict(arguments.logit_bias), "speculate": speculate, **more}
    found = sampling_params_from(given)
    if found.constraint is not None:
        check_alone(found.constraint)
    checked_keys: GenerateSettings = GenerateSettings(**given)  # type: ignore[typeddict-item]
    return checked_keys


def add_constraints(parser: argparse.ArgumentParser) -> None:
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--json-schema", metavar="FILE", help="answer with JSON that follows the schema in FILE")
    one.add_argument("--regex", metavar="EXPRESSION", help="answer with a text that matches")
    one.add_argument("--grammar", metavar="FILE", help="answer by the grammar in FILE, in llguidance's form of Lark")
    one.add_argument("--choices", nargs="+", metavar="TEXT", help="answer with one of these texts")


def constraints(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings they stand for."""
    files = ("json_schema", "grammar")
    found = {name: _read(path) for name in files if (path := getattr(arguments, name)) is not None}
    return found | {name: getattr(arguments, name) for name in ("regex", "choices")}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
