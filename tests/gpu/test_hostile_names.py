"""Names and strings out of a file are text everywhere: in a terminal, in markup, in HTML, in Graphviz, in JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_file, vk_blob
from webpte import container as c
from webpte.cli import main
from webpte.container import DType, VkInt, VkString, VkTensor
from webpte.container.flat import MAX_NAME_CHARS
from webpte.text import sanitize

F32 = DType.FLOAT32
NAMES = {
    "html": "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`${alert(3)}{{7*7}}{% raw %}",
    "markup": "[/foo] [bold red]x[/] [link=http://x]y :warning: \\[",
    "percent": "%s %n {0} {event.stage} $(touch x) `touch y`; rm",
}
ESCAPES = "\x1b[31mRED\x1b]0;title\x07\x1b[2J\x9b1m\x08\r\u202eevil\u2066\u200b\x00"
COMMAND_LINES = [
    ["inspect"],
    ["inspect", "--json"],
    ["inspect", "--html", "out.html"],
    ["inspect", "--dot", "out.dot"],
    ["check"],
    ["check", "--json"],
    ["run"],
    ["run", "--json"],
    ["profile"],
    ["compare"],
    ["bench"],
    ["tune"],
]


def T(*dims, **more):  # noqa: N802
    return VkTensor(F32, dims, **more)


def write(path, evil, known):
    """A method with `evil` as the names of a constant, a tensor, an option, an op unless `known`, and in a string."""
    values = [T(4), T(4, constant_id=0), VkInt(1), T(4), T(4), VkString(evil + ESCAPES)]
    calls = [("aten.add.Tensor", (0, 1, 2, 3)), ("aten.relu.default" if known else f"aten.{evil}", (3, 4))]
    blob = vk_blob(values, calls, [0], [4], [c.VkConstant(None, evil + "key", 16)])
    border = [c.TensorValue(F32, (4,), (0,), place=ALONE, name=evil) for _ in range(2)]
    text = c.StringValue(evil + ESCAPES)
    delegate = DelegateBlob(blob, compile_specs={evil: ESCAPES.encode()})
    methods = [
        Method("forward", [*border, text], [0], [1, 2], [c.DelegateCall(0, (0, 1))], [delegate]),
        Method(evil, [text], outputs=[0]),
    ]
    pte_file(path, methods, named_data={evil + "key": np.ones(4, "f4")})


@pytest.mark.parametrize("known", [True, False], ids=["runs", "refused"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", COMMAND_LINES, ids=" ".join)
def test_commands_show_names_as_text(command, name, known, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write("p.pte", NAMES[name], known)
    assert main([command[0], "p.pte", *command[1:]]) in (0, 1)
    printed = capsys.readouterr()
    shown = printed.out + printed.err
    assert shown and sanitize(shown) == shown
    if "--json" in command:
        json.loads(printed.out)
    if "--html" in command:
        page = (tmp_path / "out.html").read_text()
        assert "<script>alert(1)" not in page and "<img src=x" not in page
    if "--dot" in command:
        assert sanitize((tmp_path / "out.dot").read_text()) == (tmp_path / "out.dot").read_text()
    assert {p.name for p in tmp_path.iterdir()} <= {"p.pte", "out.html", "out.dot", "cache"}


@pytest.mark.parametrize("part", ["op", "method", "key", "kernel", "tensor"])
def test_names_that_are_not_printable_are_refused(part, tmp_path):
    names = dict.fromkeys(("op", "method", "key", "kernel", "tensor"), "name") | {part: f"na{ESCAPES}me"}
    blob = vk_blob([T(4), T(4)], [(names["op"], (0, 1))], [0], [1], [c.VkConstant(None, names["key"], 16)])
    border = [c.TensorValue(F32, (4,), (0,), place=ALONE, name=names["tensor"]) for _ in range(2)]
    steps: list[c.Instruction] = [c.DelegateCall(0, (0, 1)), c.KernelCall(names["kernel"], (0, 1, 1))]
    pte_file(tmp_path / "p.pte", [Method(names["method"], border, [0], [1], steps, [DelegateBlob(blob)])])
    with raises(webpte.FormatError, ascii(names[part]), len(names[part]), MAX_NAME_CHARS) as caught:
        webpte.load(tmp_path / "p.pte")
    assert str(caught.value).isascii() and str(caught.value).isprintable()


def test_console_opened_only_by_terminal_module():
    for path in Path(sys.modules["webpte.cli"].__file__ or "").parent.rglob("*.py"):
        assert path.name == "terminal.py" or " Console(" not in path.read_text(), f"{path} opens a console of its own"
