"""Serve models over HTTP, as OpenAI's API does: chats, completions, responses, embeddings. Ends in order on SIGTERM or
Ctrl-C, at once on the second."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from ..errors import Error, UnsupportedError
from ..serve.config import PREFIX, Config, Gathered, gather, read_text
from .parsing import check_input
from .say import say

NO_FLAG = ("models", "api_keys")  # keys on a command line are seen by all who list processes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a .pte program or a bundle, as PATH or NAME=PATH; several may be served",
    )
    parser.add_argument("--config", metavar="TOML", help="a file with any of the fields below, by their names")
    parser.add_argument("--show-config", action="store_true", help="print all fields, where each comes from, and end")
    for one in dataclasses.fields(Config):
        if one.name in NO_FLAG:
            continue
        option = f"--{one.name.replace('_', '-')}"
        told = f"{one.metadata['told']} ({_shown(one.default)})"
        if isinstance(one.default, bool):
            parser.add_argument(option, action="store_const", const=True, dest=one.name, help=told)
        elif "choices" in one.metadata:
            parser.add_argument(option, choices=one.metadata["choices"], dest=one.name, help=told)
        else:
            metavar = "FILE" if one.name.endswith("_file") else METAVARS[type(one.default)]
            parser.add_argument(option, type=_reader(one), dest=one.name, metavar=metavar, help=told)
    parser.epilog = f"Each field may come from the environment, too: {PREFIX}PORT and so on. Keys: {PREFIX}API_KEYS."


METAVARS: dict[type, str] = {int: "N", float: "X", str: "TEXT", tuple: "LIST"}


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "no"
    return f"{default:g}" if isinstance(default, float) else str(default) if default not in ("", ()) else "none"


def _reader(one: dataclasses.Field[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return read_text(one, text, f"--{one.name.replace('_', '-')}")
        except Error as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def run(arguments: argparse.Namespace) -> int:
    check_input("--config", arguments.config)
    found = gathered(arguments)
    if arguments.show_config:
        print(found.shown())
        return 0
    try:
        from ..serve.running import serve
    except ImportError as error:
        raise UnsupportedError(f"a server needs more packages ({error}): pip install 'webpte[server]'") from error
    return serve(found.config, lambda address: say(f"serving at {address}", error=True))


def gathered(arguments: argparse.Namespace) -> Gathered:
    flags = {one.name: getattr(arguments, one.name, None) for one in dataclasses.fields(Config)}
    flags["models"] = tuple(arguments.files) or None
    given = {name: value for name, value in flags.items() if value is not None}
    return gather(given, file=arguments.config)
