"""Parse command lines: help that fits 80 columns, suggestions for typos, checks before anything is loaded."""

from __future__ import annotations

import argparse
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from ..errors import Error, InputError
from ..text import close_matches, shell_word


class HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs to the width of the terminal and leaves indented lines, such as tables, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts: list[str] = []
        paragraph: list[str] = []

        def flush() -> None:
            if paragraph:
                parts.append(textwrap.fill(" ".join(paragraph), width))
                paragraph.clear()

        for line in text.splitlines():
            if line.strip() and not line.startswith(" "):
                paragraph.append(line.strip())
            else:
                flush()
                parts.append(line)
        flush()
        return "\n".join(f"{indent}{line}" for line in "\n".join(parts).splitlines())


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options, and suggests a command, option or choice for a mistyped one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=HelpFormatter, **options)

    def shorten_usage(self) -> None:
        """Name only required arguments in the usage line. The help lists every option below it."""
        required = [a for a in self._actions if a.option_strings and a.required]
        words = [f"{action.option_strings[0]} {action.metavar}" for action in required]
        for action in self._actions:
            if not action.option_strings:
                word = action.metavar if isinstance(action.metavar, str) else action.dest
                words.append({"?": f"[{word}]", "*": f"[{word} ...]"}.get(str(action.nargs), word))
        self.usage = " ".join([self.prog, "[options]", *words])

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a command's arguments. An optional argument after a required one may follow options."""
        positionals = [action for action in self._actions if not action.option_strings]
        if len(positionals) > 1 and positionals[-1].nargs == "?":
            return self.parse_intermixed_args(arguments)
        return self.parse_args(arguments)

    def error(self, message: str) -> NoReturn:
        super().error(message + self._hint(message))

    def _hint(self, message: str) -> str:
        if match := re.match(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            name, value, choices = match.groups()
            if name == "COMMAND" and (os.path.exists(value) or value.endswith(".pte")):
                word = shell_word(value)
                return f". A file comes after a command: webpte inspect {word}, webpte run {word}"
            return did_you_mean([value], re.findall(r"[^',\s]+", choices))
        if match := re.match(r"unrecognized arguments: (.*)$", message):
            options = [word.partition("=")[0] for word in match[1].split() if word.startswith("-")]
            command = "".join(f"{word} " for word in self.prog.split()[1:])
            return did_you_mean(options, self._option_string_actions) or f". webpte {command}--help lists them"
        return ""


def did_you_mean(words: Iterable[str], names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `. Did you mean inspect?`, or an empty string if no name is similar."""

    candidates = list(names)
    close = dict.fromkeys(name for word in words for name in close_matches(word, candidates, 1, cutoff))
    return f". Did you mean {', '.join(close)}?" if close else ""


def integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return the type of an option that takes an integer in a range."""
    expected = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < minimum or (maximum is not None and number > maximum):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return number

    return parse


def number(above: float | None = None, minimum: float | None = None) -> Callable[[str], float]:
    """Return the type of an option that takes a finite number above, or of at least, a bound."""
    bound = f" above {above:g}" if above is not None else f" of at least {minimum:g}" if minimum is not None else ""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        in_range = (above is None or value > above) and (minimum is None or value >= minimum)
        if not math.isfinite(value) or not in_range:
            raise argparse.ArgumentTypeError(f"expected a number{bound}, got {text!r}")
        return value

    return parse


def option_error(error: Error) -> argparse.ArgumentTypeError:
    """Return an error of an option's value without the name of the argument, which argparse prints before it."""
    return argparse.ArgumentTypeError(str(error).removeprefix(f"{error.argument}: "))


def check_output(option: str, path: str | None, suffixes: tuple[str, ...] = ()) -> None:
    """Raise an InputError if a file cannot be written to `path`, before minutes are spent on its content."""
    if path is None:
        return
    _check_writable(option, path, os.path.dirname(path) or ".")
    if os.path.isdir(path):
        example = os.path.join(path, "out")
        raise _path_error(option, path, "a file to write", "a folder", f"Name a file in it, such as {example}.")
    if suffixes and not path.lower().endswith(suffixes):
        raise InputError(
            argument=option, expected=f"a name that ends in {' or '.join(suffixes)}", got=path, code="suffix"
        )


def check_folder(option: str, path: str | None) -> None:
    """Raise an InputError if a folder cannot be created or filled at `path`."""
    if path is None:
        return
    if os.path.exists(path) and not os.path.isdir(path):
        raise _path_error(option, path, "a folder", "a file", "Name a folder.")
    _check_writable(option, path, os.path.dirname(os.path.abspath(path)))


def _check_writable(option: str, path: str, parent: str) -> None:
    if not os.path.isdir(parent):
        hint = "Create it first."
        raise InputError(
            f"cannot write {path}: there is no folder {parent}", argument=option, hint=hint, code="no_folder"
        )
    if not os.access(path if os.path.exists(path) else parent, os.W_OK):
        raise InputError(
            f"cannot write {path}: permission denied",
            argument=option,
            hint="Choose a path with write permission.",
            code="not_writable",
        )


def _path_error(option: str, path: str, expected: str, kind: str, hint: str) -> InputError:
    return InputError(argument=option, expected=expected, got=f"{path}, which is {kind}", hint=hint, code="path_kind")


def check_input(option: str, path: str | None) -> None:
    """Raise an InputError if there is no file or folder at `path`."""
    if path is not None and not os.path.exists(path):
        from ..container.files import similar_paths  # only errors need it

        raise InputError(f"{path} does not exist{similar_paths(path)}", argument=option, code="not_found")


# -- options that commands share ---------------------------------------------------------------------------------------

INPUTS = """\
Inputs are given in order, by position as 0=VALUE, or by the name that inspect shows as NAME=VALUE. VALUE is one of:
  x.npy, all.npz:KEY  an array
  all.npz             several inputs, by keys that end in a number, or in order
  photo.png           an image, resized to the input's bound, RGB from 0 to 1;
                      photo.png:-1..1 and photo.png:imagenet scale it otherwise
  1x16:random         a shape and its content: random, zeros, ones, arange, a
                      number, or 0..99 for random numbers of that range;
                      without a shape, the input's bound
  3                   a number
"""


AT_THE_BOUND = """\
An input that is not given is random at its bound: floats are normal, integers 0 or 1, a single integer is 0.
"""


MODEL = (
    "a .pte program, a bundle's folder, a checkpoint (model.gguf or a folder), hf:org/name, the https: address of a "
    ".pte file, or a name like smollm2"
)
PROGRAM = "the .pte program, hf:org/name[/path/model.pte][@revision], or an https: address"


def add_program(parser: argparse.ArgumentParser, bundle: bool = False, model: bool = False) -> None:
    """Add the arguments that name a program and its constants. With `model`, checkpoints are built on first use."""
    kinds = MODEL if model else f"{PROGRAM}, or the folder of a bundle" if bundle else PROGRAM
    parser.add_argument("file", help=kinds)
    add_data(parser)
    if model:
        add_max_context(parser)
    else:
        parser.set_defaults(downloads=("file",))


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options of what a program needs besides its file."""
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with constants")
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        help="import a module, or a .py file, that registers ops",
    )


def add_max_context(parser: argparse.ArgumentParser) -> None:
    """Add the option that sets the context of a checkpoint."""
    parser.add_argument(
        "--max-context",
        type=integer(2),
        metavar="N",
        help="tokens of a sequence, for a checkpoint (the model's own, at most 8192 and as memory allows)",
    )


def add_call(parser: argparse.ArgumentParser, default_inputs: str, input_action: Any = "append") -> None:
    """Add the options that name a method and its inputs. `default_inputs` says what an input is that is not given."""
    parser.epilog = f"{INPUTS}{default_inputs}"
    parser.add_argument("--method", default="forward", metavar="NAME", help="the method to call (forward)")
    default: list[Any] = [] if input_action == "append" else [[]]
    parser.add_argument(
        "--input", action=input_action, default=default, metavar="[NAME=]VALUE", help="an input, see below"
    )
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="seed of random inputs (0)")


def add_fallback(parser: argparse.ArgumentParser) -> None:
    """Add the option that allows ops without a kernel."""
    parser.add_argument("--fallback", choices=("cpu",), help="run ops that have no kernel on the CPU, slowly")


def add_json(parser: argparse.ArgumentParser, text: str = "print the report as JSON") -> None:
    """Add the option that prints JSON."""
    parser.add_argument("--json", action="store_true", help=text)
