"""The command line: one module per command, imported when it is used."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from . import interrupts

if TYPE_CHECKING:  # nothing is imported before Ctrl-C is looked after
    import argparse
    from collections.abc import Sequence
    from types import ModuleType

COMMANDS = {
    "doctor": "tell whether this machine can run programs",
    "inspect": "print what a .pte file holds",
    "check": "find everything that keeps a program from running",
    "run": "call a method on files, images, shapes or numbers",
    "bench": "measure loading, calls and memory",
    "tune": "find the fastest kernels for a program on this machine",
    "compare": "find the first op that gives wrong numbers",
    "profile": "measure where a call's time goes, op by op",
    "export": "turn a Llama-family checkpoint into a .pte program",
    "bundle": "write a program as static files for a web page",
    "generate": "continue or answer a prompt",
    "chat": "talk to a language model",
}


def entry() -> None:
    """The `webpte` command, to the end of its process. After Ctrl-C that comes at once, whatever it has broken."""
    watch = interrupts.start()
    code: object = interrupts.EXIT_CODE
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
    sys.exit(code)  # type: ignore[arg-type]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Errors are one message on stderr and exit code 1, Ctrl-C is 130."""
    import argparse

    from .. import __version__
    from ..errors import Error
    from .say import say

    parser = argparse.ArgumentParser(
        prog="webpte", description="Run ExecuTorch .pte programs on any GPU through WebGPU."
    )
    parser.add_argument("--version", action="version", version=f"webpte {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    # Only the module of the command that was asked for is imported: help and completion stay fast.
    arguments, rest = parser.parse_known_args(argv)
    try:
        command, own = load_command(arguments.command)
        code: int | None = command.run(own.parse_args(rest))
    except Error as error:
        say(f"{type(error).__name__}: {error}", error=True)
        return 1
    except KeyboardInterrupt:
        return interrupts.EXIT_CODE
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    return code or 0


def load_command(name: str) -> tuple[ModuleType, argparse.ArgumentParser]:
    """A command's module and its parser, which the reference in the documentation is made of too."""
    import argparse

    command = importlib.import_module(f".{name}", __package__)
    parser = argparse.ArgumentParser(prog=f"webpte {name}", description=command.__doc__)
    command.configure(parser)
    return command, parser
