"""Read the same facts out of the text, the JSON and the page of `webpte inspect`."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webpte.cli import main
from webpte.cli.terminal import OutputTable
from webpte.text import size

from .screens import record

Delegate = tuple[str, str, str, str]  # number, backend, calls, constants


@dataclass(frozen=True)
class Facts:
    """Facts about one method, with sizes as the text shows them."""

    takes: list[str]
    returns: list[str]
    problem: str | None
    calls: tuple[int, int] | None  # as it runs and in the file; None where it does not
    submits: int | None
    between: str | None
    memory: tuple[str, ...] | None  # constants, state, activations
    cpu_calls: dict[str, int]
    delegates: list[Delegate]
    constants: tuple[int, str]


def check_same(path: Path, folder: Path, capsys: Any, *options: str) -> int:
    """All methods with calls, all three ways; how many there were."""
    said = record("inspect", path, *options).said
    assert main(["inspect", str(path), *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    methods = [method for method in report["methods"] if method["returns"] is None]
    for method in methods:
        page = folder / "page.html"
        assert main(["inspect", str(path), *options, "--html", str(page), "--method", method["name"]]) == 0
        capsys.readouterr()
        facts = facts_of_json(method)
        assert facts_of_text(said, method["name"]) == facts
        result = page.read_text(encoding="utf-8")
        assert facts_of_page(result) == facts
        assert constant_methods_of_text(said) == constant_methods_of_json(report) == constant_methods_of_page(result)
    return len(methods)


# -- JSON ----------------------------------------------------------------------------------------------------------


def facts_of_json(method: Mapping[str, Any]) -> Facts:
    execution = method["execution"]
    in_file = sum(method["calls"].values()) + sum(method["kernel_calls"].values())
    for argument in (*method["inputs"], *method["outputs"]):
        marks = zip(argument["bound"] or (), argument["dynamic"] or (), strict=True)
        dims = ", ".join(f"<={n}" if may else str(n) for n, may in marks)
        assert argument["text"] == (argument["kind"] if argument["bound"] is None else f"{argument['dtype']}[{dims}]")
    return Facts(
        [argument["text"] for argument in method["inputs"]],
        [argument["text"] for argument in method["outputs"]],
        method["problem"],
        None if execution is None else (execution["calls"], in_file),
        None if execution is None else execution["submits"],
        None if execution is None else size(execution["bytes_to_host_between"]),
        None if execution is None else tuple(size(execution["memory"][k]) for k in ("constant", "state", "activation")),
        {} if execution is None else execution["cpu_calls"],
        [_delegate(d) for d in method["delegates"]],
        (len(method["constants"]), size(sum(c["bytes"] for c in method["constants"]))),
    )


def _delegate(d: Mapping[str, Any]) -> Delegate:
    if not d["known"]:
        return str(d["number"]), d["backend"], "", ""
    return str(d["number"]), d["backend"], str(d["calls"]), f"{d['constants']} ({size(d['constant_bytes'])})"


def constant_methods_of_json(report: Mapping[str, Any]) -> dict[str, str]:
    results = {m["name"]: m["returns"] for m in report["methods"] if m["returns"] is not None}
    return {name: ", ".join(map(str, returns)) for name, returns in results.items()}


# -- text: what is put on a screen, before it is laid out (`screens.py` holds that nothing is lost there) --------------


def facts_of_text(said: Sequence[str | OutputTable], name: str) -> Facts:
    part = _section(said, name)
    texts = [one.strip() for one in part if isinstance(one, str)]
    arguments, delegates = _rows(part, "argument"), _rows(part, "delegate")
    ran = next((text for text in texts if " in the file; runs in " in text), "")
    numbers = re.match(
        r"(\d+) calls?, (\d+) in the file; runs in (\d+) submits?, (.+?) to the host in between; "
        r"GPU memory: constants (.+?), state (.+?), activations (.+)$",
        ran.split("\n")[0],
    )
    constants = next((match for text in texts if (match := re.match(r"(\d+) distinct constants?, (.+)$", text))), None)
    others = [
        text for text in texts if text not in (name, ran) and " distinct " not in text and "more (--json" not in text
    ]
    return Facts(
        [row["type and bound"] for row in arguments if row["argument"].startswith("input")],
        [row["type and bound"] for row in arguments if row["argument"].startswith("output")],
        others[0] if others else None,
        None if numbers is None else (int(numbers[1]), int(numbers[2])),
        None if numbers is None else int(numbers[3]),
        None if numbers is None else numbers[4],
        None if numbers is None else (numbers[5], numbers[6], numbers[7]),
        dict(_cpu_calls(ran)),
        [(row["delegate"], row["backend"], row["calls"], row["constants"]) for row in delegates],
        (int(constants[1]), constants[2]) if constants else (0, "0 B"),
    )


def _section(said: Sequence[str | OutputTable], name: str) -> list[str | OutputTable]:
    """Return what is said of one method: from its name to the next method's, or to the constant ones."""
    starts = [i - 1 for i, one in enumerate(said) if _title(one) == "argument"] + [
        i for i, one in enumerate(said) if _title(one) == "constant method"
    ]
    begin = next(i for i in starts if said[i] == f"\n{name}")
    return list(said[begin : next((i for i in starts if i > begin), len(said))])


def _title(one: str | OutputTable) -> str:
    return one.columns[0].title if isinstance(one, OutputTable) else ""


def _rows(part: Sequence[str | OutputTable], first: str) -> list[dict[str, str]]:
    """Return the rows of the table whose first title that is, by title."""
    return [
        {column.title: cell.plain for column, cell in zip(one.columns, cells, strict=True)}
        for one in part
        if isinstance(one, OutputTable) and _title(one) == first
        for cells, _ in one.rows
    ]


def _cpu_calls(text: str) -> Iterator[tuple[str, int]]:
    for line in text.split("\n"):
        if line.startswith("on the CPU: "):
            for part in line.removeprefix("on the CPU: ").split(", "):
                name, _, count = part.rpartition(" x")
                yield name, int(count)


def constant_methods_of_text(said: Sequence[str | OutputTable]) -> dict[str, str]:
    return {row["constant method"]: row["returns"] for row in _rows(said, "constant method")}


# -- the page ------------------------------------------------------------------------------------------------------


def facts_of_page(page: str) -> Facts:
    signature = re.search(r'<p class="signature">(.*?)</p>', page, re.S)
    problem = re.search(r'<pre class="problem">(.*?)</pre>', page, re.S)
    calls = re.search(r"<dt>Calls</dt><dd>(\d+)</dd><dd class=\"quiet\">[^<]*?; (\d+) in the file", page)
    submits = re.search(r"<dt>Submits</dt><dd>(\d+)</dd><dd class=\"quiet\">(.+?) to the host", page)
    kinds = dict(re.findall(r'<span class="key (\w+)">\w+ (.+?)</span>', page))
    constants = re.search(r"<p>(\d+) distinct constants?, (.+?)\.</p>", page)
    assert signature is not None and constants is not None
    takes, returns = signature[1].split('<span class="label">returns</span>')
    return Facts(
        _types(takes),
        _types(returns),
        html.unescape(problem[1]) if problem else None,
        (int(calls[1]), int(calls[2])) if calls else None,
        int(submits[1]) if submits else None,
        submits[2] if submits else None,
        tuple(kinds[kind] for kind in ("constant", "state", "activation")) if kinds else None,
        _page_cpu_calls(page),
        list(_page_delegates(page)),
        (int(constants[1]), constants[2]),
    )


def _types(part: str) -> list[str]:
    matches = re.findall(r"<b>%\d+</b> (.*?)</a>", part, re.S)
    return [html.unescape(re.sub(r"<[^>]*>", "", text)).replace("≤", "<=") for text in matches]


def _page_cpu_calls(page: str) -> dict[str, int]:
    card = re.search(r'<dt>On the CPU</dt><dd>(\d+)</dd><dd class="quiet">(.*?)</dd>', page, re.S)
    parts = html.unescape(card[2]).split(", ") if card else []
    return {name.strip(): int(count) for name, count in (part.rsplit(" ×", 1) for part in parts)}


def _page_delegates(page: str) -> Iterator[Delegate]:
    table = re.search(r'<h2>Delegates</h2>\n<table class="transfers">.*?<tbody>(.*?)</tbody>', page, re.S)
    for row in re.findall(r"<tr>(.*?)</tr>", table[1] if table else "", re.S):
        cells = [
            html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in re.findall(r"<td.*?>(.*?)</td>", row, re.S)
        ]
        known = cells[2] != "cannot be looked into"
        yield cells[0], cells[1], cells[2] if known else "", cells[3] if known else ""


def constant_methods_of_page(page: str) -> dict[str, str]:
    return {html.unescape(n): html.unescape(v) for n, v in re.findall(r"<li>(\S+) = (.*?)</li>", page)}
