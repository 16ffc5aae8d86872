"""Outputs of commands at several widths of a terminal, recorded once, because times differ from run to run."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

from rich.cells import cell_len
from rich.console import Console

from webpte.cli import main
from webpte.cli.terminal import GAP, OutputTable, Page, fit

WIDTHS = (60, 80, 120)
UNITS = r"(?:[kMG]?B|[mµ]?s|%|x|tok/s|GB/s|GFLOP/s)"
_AMOUNT = re.compile(rf"[\d.]+ {UNITS}(?![\w/])")
_LONE_UNIT = re.compile(rf"\s*{UNITS}(?![\w/])")
Printed = Callable[[Page], None]


class Recorder(Page):
    """Prints nothing and remembers what was to be printed."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO()), None)
        self.parts: list[Printed] = []
        self.said: list[str | OutputTable] = []

    @property
    def tables(self) -> list[OutputTable]:
        return [one for one in self.said if isinstance(one, OutputTable)]

    def text(self, *args: Any, **options: Any) -> None:
        self.parts.append(lambda page: page.text(*args, **options))
        self.said.append(str(args[0]))

    def bullets(self, *args: Any) -> None:
        self.parts.append(lambda page: page.bullets(*args))

    def table(self, table: OutputTable) -> None:
        self.parts.append(lambda page: page.table(table))
        self.said.append(table)


@contextmanager
def _recording(command: str) -> Iterator[Recorder]:
    recorder = Recorder()
    with mock.patch.object(import_module(f"webpte.cli.{command}"), "open_page", lambda: recorder):
        yield recorder


def record(*arguments: object) -> Recorder:
    """The pages of one command."""
    command, *rest = map(str, arguments)
    with _recording(command) as recorder:
        assert main([command, *rest]) in (0, 1)
    assert recorder.parts, f"{command} printed nothing"
    return recorder


def printed(parts: Sequence[Printed], width: int | None) -> list[str]:
    file = io.StringIO()
    page = Page(Console(file=file, highlight=False, markup=False, emoji=False, color_system=None), width)
    for part in parts:
        part(page)
    return file.getvalue().splitlines()


def check_widths(recorder: Recorder) -> None:
    """Check that no line is too long, numbers keep their units, and every shown cell is whole."""
    whole = printed(recorder.parts, None)
    amounts = set(_AMOUNT.findall("\n".join(whole)))
    for width in WIDTHS:
        lines = printed(recorder.parts, width)
        assert not [line for line in lines if cell_len(line) > width], (width, lines)
        assert not [line for line in lines if "…" in line or "..." in line], (width, lines)
        assert not [line for line in lines if _LONE_UNIT.match(line)], (width, lines)
        assert set(_AMOUNT.findall("\n".join(lines))) <= amounts, (width, lines)
        assert all(line == line.rstrip() for line in lines)
        for table in recorder.tables:
            check_table(table, width)
    for table in recorder.tables:
        check_table(table, None)


def check_table(table: OutputTable, width: int | None) -> None:
    """Check that each column of the printed table, folded or not, has the text of the cells."""
    shown, widths = fit(table, width)
    dropped = [column.title for i, column in enumerate(table.columns) if i not in shown]
    full = {tuple(cell.plain for cell in cells) for cells, _ in table.rows}
    assert len({tuple(cells[i].plain for i in shown) for cells, _ in table.rows}) == len(full), dropped
    lines = printed([lambda page: page.table(table)], width)[1:]
    text = "\n".join(lines)
    assert all(title in text.replace("\n", " ") for title in dropped) and (width is not None or not dropped)
    columns = _columns(lines, widths)
    for index, actual in zip(shown, columns, strict=True):
        expected = "".join([table.columns[index].title, *(cells[index].plain for cells, _ in table.rows)])
        assert _squeezed(actual).startswith(_squeezed(expected)), (width, expected, actual)


def _columns(lines: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the text of each column, downwards. Wide characters count twice, as on a screen."""
    cells = ["".join(c + "\0" * (cell_len(c) - 1) for c in line) for line in lines]
    starts = [sum(widths[:i]) + GAP * i for i in range(len(widths))]
    return ["".join(line[start : start + w] for line in cells) for start, w in zip(starts, widths, strict=True)]


def _squeezed(text: str) -> str:
    return re.sub(r"[\s\0]", "", text)
