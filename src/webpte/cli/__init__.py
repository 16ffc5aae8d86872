"""The command line: one module per command, imported when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from . import interrupts

if TYPE_CHECKING:  # nothing is imported before Ctrl-C is looked after
    from collections.abc import Sequence
    from types import ModuleType

    from .parsing import Parser

COMMANDS = {
    "doctor": "tell whether this machine can run programs",
    "inspect": "print what a .pte file holds",
    "check": "find everything that keeps a program from running",
    "run": "call a method on files, images, shapes or numbers",
    "bench": "measure loading, calls and memory",
    "tune": "find the fastest kernels for a program on this machine",
    "compare": "find the first op that gives wrong numbers",
    "profile": "measure where a call's time goes, op by op",
    "export": "turn a checkpoint into a .pte program",
    "bundle": "write a program as static files for a web page",
    "batch": "embed or answer every row of a table, to be killed and go on",
    "generate": "continue or answer a prompt",
    "chat": "talk to a language model",
    "serve": "answer requests over HTTP, as OpenAI's API does",
    "eval": "measure how well a language model predicts a text",
    "completion": "print what bash, zsh or fish needs to complete all this",
}
EXIT_CODES = """\
exit codes: 0 done; 1 an error, told in one message on stderr, or check, compare or doctor found something;
2 a wrong command line; 130 Ctrl-C
"""


def entry() -> None:
    """The `webpte` command, to the end of its process. After Ctrl-C that comes at once, whatever it has broken."""
    watch = interrupts.start()
    code: object = interrupts.EXIT_CODE
    _print_anything()
    try:
        code = main()
    except SystemExit as ended:  # of argparse
        code = ended.code
    except BaseException:
        if not watch.interrupted:
            raise
    if watch.interrupted or code == interrupts.EXIT_CODE:
        interrupts.end()
    watch.close()
    _finish_output()
    sys.exit(code)  # type: ignore[arg-type]


def _print_anything() -> None:
    """A terminal or pipe that cannot show a character gets a mark in its place, not an error in ours."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _finish_output() -> None:
    """Print what is left. A reader that has gone, such as `head`, is no failure, now or when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # gone; closed; none at all
            if hasattr(stream, "fileno"):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Errors are one message on stderr and exit code 1, Ctrl-C is 130."""
    from ..errors import Error
    from .output import print_json, say

    as_json = False
    # Only the module of the command that was asked for is imported: help and completion stay fast.
    try:
        arguments, rest = make_parser().parse_known_args(argv)
        command, own = load_command(arguments.command)
        options = own.parse_args(rest)
        as_json = getattr(options, "json", False) is True
        code: int | None = command.run(options)
    except Error as error:
        say(f"{type(error).__name__}: {error}", error=True)
        if as_json:
            print_json({"error": error.to_json()})
        return 1
    except KeyboardInterrupt:
        return interrupts.EXIT_CODE
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        return 0
    return code or 0


def make_parser() -> Parser:
    """The parser of the command's name; what follows it is for the command's own."""
    import argparse

    from .. import __version__
    from .parsing import Parser

    parser = Parser(
        prog="webpte",
        description="Run ExecuTorch .pte programs on any GPU through WebGPU.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"webpte {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def load_command(name: str) -> tuple[ModuleType, Parser]:
    """A command's module and its parser, which the reference in the documentation is made of too."""
    from .parsing import Parser

    command = importlib.import_module(f".{name}", __package__)
    parser = Parser(prog=f"webpte {name}", description=command.__doc__)
    command.configure(parser)
    return command, parser
