"""Serve models over HTTP with the APIs of OpenAI, Anthropic and Ollama, and a chat page.

SIGTERM or Ctrl-C shuts the server down gracefully; a second signal ends it at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from ..errors import Error, UnsupportedError
from .output import say
from .parsing import check_input, option_error
from .programs import open_models

if TYPE_CHECKING:
    from ..serve.config import ConfigSources

NO_OPTION = ("models", "api_keys")  # keys on a command line are visible to every user of the machine


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a .pte program, a bundle or a checkpoint, as PATH or NAME=PATH; repeatable",
    )
    parser.add_argument("--config", metavar="TOML", help="file with any of the fields below, by their names")
    parser.add_argument("--show-config", action="store_true", help="print all fields and their sources, and exit")
    try:
        from ..serve.config import ENV_PREFIX, FIELDS
    except ImportError:  # the extra is not installed: `run` raises the error
        return
    for name, one in FIELDS.items():
        if name in NO_OPTION:
            continue
        option = f"--{name.replace('_', '-')}"
        text = f"{one.description} (default: {_default_text(one.default)})".replace("%", "%%")
        if isinstance(one.default, bool):
            parser.add_argument(option, action="store_const", const=True, dest=name, help=text)
        elif choices := choices_of(one):
            parser.add_argument(option, choices=choices, dest=name, help=text)
        else:
            metavar = "FILE" if name.endswith("_file") else METAVARS[type(one.default)]
            parser.add_argument(option, type=_reader(name), dest=name, metavar=metavar, help=text)
    parser.epilog = (
        f"Every field can also be set in the environment: {ENV_PREFIX}PORT, and {ENV_PREFIX}API_KEYS for keys."
    )


METAVARS: dict[type, str] = {int: "N", float: "X", str: "TEXT", tuple: "LIST"}


def choices_of(field: Any) -> tuple[str, ...]:
    """Return the values of a field that has a fixed set of strings."""
    return tuple(value for value in get_args(field.annotation) if isinstance(value, str))


def _default_text(default: Any) -> str:
    if isinstance(default, bool):
        return "no"
    return f"{default:g}" if isinstance(default, float) else str(default) if default not in ("", ()) else "none"


def _reader(name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        from ..serve.config import parse_string

        try:
            return parse_string(name, text, f"--{name.replace('_', '-')}")
        except Error as error:
            raise option_error(error) from None

    return read


def run(arguments: argparse.Namespace) -> int:
    check_input("--config", arguments.config)
    try:
        from ..serve.running import serve
    except ImportError as error:
        raise UnsupportedError(
            f"the server requires more packages: {error}",
            hint="Run: pip install 'webpte[server]'",
            code="missing_package",
        ) from error
    sources = load_sources(arguments)
    if arguments.show_config:
        print(sources.as_toml())
        return 0
    models = open_models(sources.config.models, sources.config.max_context or None)
    config = sources.config.model_copy(update={"models": models})
    return serve(config, lambda address: say(f"serving at {address}", error=True))


def load_sources(arguments: argparse.Namespace) -> ConfigSources:
    """Return the configuration of a command line, its environment and its file."""
    from ..serve.config import FIELDS, load_config

    options = {name: getattr(arguments, name, None) for name in FIELDS}
    options["models"] = tuple(arguments.files) or None
    values = {name: value for name, value in options.items() if value is not None}
    return load_config(values, file=arguments.config)
