"""The command line: one module per command, imported when the command is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from . import interrupts

if TYPE_CHECKING:  # nothing else is imported before Ctrl-C is handled
    from collections.abc import Sequence
    from types import ModuleType

    from .parsing import Parser

COMMANDS = {
    "doctor": "check whether this machine can run programs",
    "inspect": "print the contents of a .pte file",
    "check": "list everything that prevents a program from running",
    "run": "call a method on files, images, shapes or numbers",
    "bench": "measure loading, calls and memory",
    "tune": "find the fastest kernels for a program on this machine",
    "compare": "find the first op with wrong numbers",
    "profile": "measure where the time of a call goes, op by op",
    "export": "convert a checkpoint into a .pte program",
    "bundle": "write a program as static files for a web page",
    "batch": "run a model over every row of a table (resumable)",
    "generate": "continue or answer a prompt",
    "chat": "chat with a language model",
    "serve": "serve models over HTTP, with a chat page",
    "eval": "measure how well a language model predicts a text",
    "models": "list or remove the models on this machine",
    "files": "list or remove everything that webpte keeps on this disk",
    "completion": "print a completion script for bash, zsh or fish",
}
EXIT_CODES = """\
exit codes:
  0    done
  1    an error, with one message on stderr; or check, compare or doctor found
       a problem
  2    an invalid command line
  3    serve: the worker process exited again and again
  130  interrupted by Ctrl-C
  143  ended by SIGTERM
"""


def entry() -> None:
    """Run the `webpte` command and end the process. After Ctrl-C or SIGTERM the process ends at once."""
    try:
        interrupts.start()
        _replace_unprintable()
        code = _exit_code()
        interrupts.close()
    except BaseException as error:
        if not (isinstance(error, KeyboardInterrupt) or interrupts.arrived()):
            raise
        interrupts.end()
    if interrupts.arrived() or code == interrupts.EXIT_CODE:
        interrupts.end()
    _flush_output()
    sys.exit(code)  # type: ignore[arg-type]


def _exit_code() -> object:
    """Run a command and return its exit code, also if argparse exits."""
    try:
        return main()
    except SystemExit as ended:
        return ended.code


def _replace_unprintable() -> None:
    """Print a replacement for each character that the output's encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _flush_output() -> None:
    """Flush both streams. A reader that has closed the pipe, such as `head`, is not an error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed by the reader, closed by us, absent
            if hasattr(stream, "fileno"):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 or 3 after an error, 130 after Ctrl-C."""
    from ..errors import Error
    from .output import print_json, say

    as_json = False
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        make_parser().print_help()
        return 0
    # Only the module of the command is imported: help and completion stay fast.
    try:
        name, rest = make_parser().parse_known_args(arguments)
        command, parser = load_command(name.command)
        options = parser.parse(rest)
        as_json = getattr(options, "json", False) is True
        if getattr(options, "imports", ()):
            from .custom_ops import import_modules

            import_modules(options.imports)
        if getattr(options, "downloads", ()):
            from .programs import download  # commands without programs start faster

            download(options)
        code: int | None = command.run(options)
    except Error as error:
        say(f"{type(error).__name__}: {error}", error=True)
        if as_json:
            print_json({"error": error.to_json()})
        return error.exit_code
    except KeyboardInterrupt:
        return interrupts.EXIT_CODE
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        return 0
    return code or 0


def make_parser() -> Parser:
    """Return the parser of the command's name. The rest of the line belongs to the command's own parser."""
    from .. import __version__
    from .parsing import Parser

    parser = Parser(
        prog="webpte",
        description="Run ExecuTorch .pte programs on any GPU through WebGPU.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"webpte {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def load_command(name: str) -> tuple[ModuleType, Parser]:
    """Return a command's module and its parser. The documentation's reference is generated from the parser."""
    from .parsing import Parser

    command = importlib.import_module(f".{name}", __package__)
    parser = Parser(prog=f"webpte {name}", description=command.__doc__)
    command.configure(parser)
    parser.shorten_usage()
    return command, parser
