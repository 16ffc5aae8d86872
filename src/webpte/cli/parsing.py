"""Command lines: what a person may have meant, and arguments that are checked before anything is loaded."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import NoReturn

from ..errors import InputError


class Parser(argparse.ArgumentParser):
    """An error names what is alike: a command, an option or a choice."""

    def error(self, message: str) -> NoReturn:
        super().error(message + self._hint(message))

    def _hint(self, message: str) -> str:
        if found := re.match(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            name, given, choices = found.groups()
            if name == "COMMAND" and (os.path.exists(given) or given.endswith(".pte")):
                return f". A file comes after a command: webpte inspect {given}, webpte run {given}"
            return did_you_mean([given], re.findall(r"[^',\s]+", choices))
        if found := re.match(r"unrecognized arguments: (.*)$", message):
            words = [word.partition("=")[0] for word in found[1].split() if word.startswith("-")]
            return did_you_mean(words, self._option_string_actions) or f". webpte {self._own_name()}--help lists them"
        return ""

    def _own_name(self) -> str:
        return "".join(f"{word} " for word in self.prog.split()[1:])


def did_you_mean(given: Iterable[str], known: Iterable[str]) -> str:
    """`. Did you mean inspect?`, or nothing if nothing is alike."""
    from difflib import get_close_matches  # only on the way to an error

    names = list(known)
    close = dict.fromkeys(name for word in given for name in get_close_matches(word, names, 1, 0.6))
    return f". Did you mean {', '.join(close)}?" if close else ""


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option: a whole number in a range."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number, such as {least}") from None
        if number < least or (most is not None and number > most):
            wanted = f"{least} or more" if most is None else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"{number} is out of range: {wanted} is wanted")
        return number

    return parse


def real(above: float | None = None, least: float | None = None) -> Callable[[str], float]:
    """The type of an option: a number that is above one, or at least one."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number, such as 1.5") from None
        if (
            not math.isfinite(number)
            or (above is not None and number <= above)
            or (least is not None and number < least)
        ):
            wanted = (
                f"above {above:g}" if above is not None else f"{least:g} or more" if least is not None else "finite"
            )
            raise argparse.ArgumentTypeError(f"{text} is out of range: a number {wanted} is wanted")
        return number

    return parse


def check_output(option: str, path: str | None, suffixes: tuple[str, ...] = ()) -> None:
    """Whether a file can be written there: told before minutes are spent on what it is to hold."""
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise InputError(f"{option}: {path} is a folder; name a file to write, such as {os.path.join(path, 'out')}")
    if not os.path.isdir(folder):
        raise InputError(f"{option}: {path} cannot be written: there is no folder {folder}; make it first")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise InputError(f"{option}: {path} cannot be written; name a place where you may write")
    if suffixes and not path.lower().endswith(suffixes):
        raise InputError(f"{option}: {path} should end in {' or '.join(suffixes)}, which says its format")


def check_folder(option: str, path: str | None) -> None:
    """Whether a folder can be made or filled there."""
    if path is None:
        return
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{option}: {path} is a file; name a folder")
    if not os.path.isdir(parent):
        raise InputError(f"{option}: {path} cannot be made: there is no folder {parent}; make it first")
    if not os.access(path if os.path.exists(path) else parent, os.W_OK):
        raise InputError(f"{option}: {path} cannot be written; name a place where you may write")


def check_input(option: str, path: str | None) -> None:
    """Whether a file or folder is there."""
    if path is not None and not os.path.exists(path):
        from ..container.near import alike  # only on the way to an error

        raise InputError(f"{option}: {path} is not there{alike(path)}. Name a file that can be read")
