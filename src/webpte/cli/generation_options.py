"""Options of language models that several commands share, each validated when it is parsed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from ..errors import Error, InputError
from ..llm.adapters import check_adapters
from ..llm.constraints import check_alone
from ..llm.options import ENGINE_HELP, EngineOptions, KvCache
from ..llm.settings import MAX_NEW_TOKENS, GenerateSettings, sampling_params_from
from ..llm.thinking import REASONING_EFFORTS
from .parsing import option_error

SETTINGS = (
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_allowed_length",
    "seed",
    "stop",
    "think",
    "reasoning_effort",
    "thinking_budget",
)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that name files, the KV cache and sampling."""
    add_tokenizer(parser)
    add_adapters(parser)
    add_kv_cache(parser)
    add_sampling(parser)


def add_kv_cache(parser: argparse.ArgumentParser) -> None:
    """Add the option that selects the dtype of the KV cache."""
    parser.add_argument(
        "--kv-cache",
        choices=get_args(KvCache),
        default=EngineOptions.kv_cache,
        help=f"{ENGINE_HELP['kv_cache']} ({EngineOptions.kv_cache})",
    )


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the tokenizer."""
    parser.add_argument(
        "--tokenizer", metavar="FILE", help="tokenizer.json or tokenizer.model (the one beside the program)"
    )


def add_adapters(parser: argparse.ArgumentParser) -> None:
    """Add the option that loads adapters."""
    parser.add_argument(
        "--adapter",
        type=_adapter,
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="load a LoRA adapter in PEFT's layout; the first is used; repeatable",
    )


def _adapter(text: str) -> tuple[str, str]:
    """Parse the name and the folder of an adapter: `poet=adapters/poet`."""
    name, _, folder = text.partition("=")
    try:
        check_adapters({name: folder})
    except Error as error:
        raise option_error(error) from None
    if not folder:
        raise argparse.ArgumentTypeError(f"expected NAME=FOLDER, got {text!r}")
    return name, folder


def add_parse_special(parser: argparse._ActionsContainer) -> None:
    """Add the option that enables special tokens in prompts."""
    parser.add_argument(
        "--parse-special",
        action="store_true",
        help="parse special tokens in the prompt, such as <|im_end|> (they are text)",
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the options of sampling and stopping."""
    _add(parser, "max_new_tokens", int, "N", f"maximum tokens to generate ({MAX_NEW_TOKENS})")
    _add(parser, "temperature", float, "T", "sampling temperature; 0 is greedy (the model's)")
    _add(parser, "top_k", int, "K", "keep the K most likely tokens; 0: all (the model's)")
    _add(parser, "top_p", float, "P", "keep the most likely tokens up to cumulative probability P (the model's)")
    _add(parser, "min_p", float, "P", "keep tokens with probability of at least P times the highest (the model's)")
    _add(parser, "repetition_penalty", float, "X", "above 1: divide the logits of tokens seen before (the model's)")
    _add(parser, "presence_penalty", float, "X", "subtract X from the logits of generated tokens (0)")
    _add(parser, "frequency_penalty", float, "X", "subtract X per occurrence of a generated token (0)")
    _add(parser, "dry_multiplier", float, "X", "penalize tokens that lengthen a repetition; 0: do not (the model's)")
    _add(parser, "dry_allowed_length", int, "N", "length of the shortest repetition that is penalized (6)")
    parser.add_argument(
        "--logit-bias",
        type=_bias,
        action="append",
        default=[],
        metavar="TOKEN=X",
        help="add X to the logit of a token; repeatable",
    )
    _add(parser, "seed", int, "N", "seed of sampling (0)")
    parser.add_argument(
        "--think",
        action=argparse.BooleanOptionalAction,
        help="think before the answer, or do not (the model's chat template)",
    )
    parser.add_argument(
        "--reasoning-effort", choices=REASONING_EFFORTS, help="how much to think, if the model's chat template reads it"
    )
    _add(parser, "thinking_budget", int, "N", "maximum tokens of the thought (no limit)")
    parser.add_argument("--speculate", choices=("on", "off"), help="draft tokens by n-gram lookup (if it is faster)")
    parser.add_argument(
        "--stop",
        type=checked("stop", str),
        action="append",
        default=[],
        metavar="TEXT",
        help="stop before this text; repeatable",
    )


def _add(parser: argparse.ArgumentParser, name: str, kind: type, metavar: str, text: str) -> None:
    option = f"--{name.replace('_', '-')}"
    parser.add_argument(option, type=checked(name, kind), metavar=metavar, help=text)


def checked(name: str, kind: type) -> Callable[[str], Any]:
    """Return the type of an option that is validated as the setting of that name."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            expected = "an integer" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None
        _validate(**{name: value})
        return value

    return read


def _bias(text: str) -> tuple[int, float]:
    """Parse a token and the bias of its logit: `17=-2.5`."""
    token, _, number = text.partition("=")
    try:
        bias = int(token), float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected TOKEN=NUMBER, got {text!r}") from None
    _validate(logit_bias=dict([bias]))
    return bias


def _validate(**values: Any) -> None:
    try:
        sampling_params_from(values)
    except Error as error:
        raise option_error(error) from None


def settings(arguments: argparse.Namespace, **more: Any) -> GenerateSettings:
    """Return the settings that a command line sets, validated together before a model is loaded."""
    speculate = {"on": True, "off": False}.get(arguments.speculate)
    named: dict[str, Any] = {name: getattr(arguments, name) for name in SETTINGS}
    values = {name: value for name, value in named.items() if value is not None}
    values |= {"logit_bias": dict(arguments.logit_bias), "speculate": speculate, **more}
    constraint = sampling_params_from(values).constraint
    if constraint is not None:
        check_alone(constraint)
    checked: GenerateSettings = GenerateSettings(**values)  # type: ignore[typeddict-item]
    return checked


def adapter_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the setting that chooses the first adapter of a command line."""
    return {"adapter": arguments.adapter[0][0]} if arguments.adapter else {}


def add_constraints(parser: argparse.ArgumentParser) -> None:
    """Add the options that constrain the output."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--json-schema", metavar="FILE", help="generate JSON that matches the schema in FILE")
    one.add_argument("--regex", metavar="EXPRESSION", help="generate a text that matches the regular expression")
    one.add_argument("--grammar", metavar="FILE", help="generate by the grammar in FILE, in llguidance's Lark syntax")
    one.add_argument("--choices", nargs="+", metavar="TEXT", help="generate one of these texts")


def constraints(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the options that constrain the output."""
    files = ("json_schema", "grammar")
    texts = {name: _read(path) for name in files if (path := getattr(arguments, name)) is not None}
    return texts | {name: getattr(arguments, name) for name in ("regex", "choices")}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}", code="unreadable") from error
