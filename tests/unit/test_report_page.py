"""The page of a report, its graph for Graphviz, and the command that writes them."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.support.harness.graphs import GraphBuilder
from tests.support.harness.writer import simple_pte, span_of
from tests.unit.test_report import planned, whole
from webpte.cli import main
from webpte.container import DType, VkInt, VkTensor
from webpte.debug.report import method_data, render_page, report_data
from webpte.debug.report.page import search_text, short_name, to_dot
from webpte.graph import Constant, Graph, Origin, String
from webpte.text import size

F32 = DType.FLOAT32
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'&{{7*7}}"


# ---------------------------------------------------------------- the page


class Strict(HTMLParser):
    """Collects scripts and attributes that could run something."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.handlers: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.tags.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def hostile_graph() -> Graph:
    """Return an op, a constant and a string with names that want to leave their place."""
    b = GraphBuilder()
    x, y = b.tensor(3, 5), b.tensor(3, 5)
    data = np.zeros(15, np.float32)
    weight = b.tensor(3, 5, constant=Constant(span_of(data), F32, HOSTILE))
    b.call(HOSTILE, (x, weight, b.add(String(HOSTILE))), y)
    return b.graph([x], [y])


def test_names_from_the_file_stay_text():
    data = method_data(hostile_graph(), None, f"{HOSTILE} has no kernel")
    page = render_page(whole(data, method=HOSTILE))
    parser = Strict()
    parser.feed(page)
    assert parser.scripts == 2 and not parser.handlers and "img" not in parser.tags
    assert "window.hacked=1</script>" not in page
    assert "{{7*7}}" in html.unescape(page.split("<title>")[1].split("</title>")[0])


def test_report_page_is_self_contained():
    b = GraphBuilder()
    x = b.tensor(3)
    page = render_page(whole(planned(b.planner([x], [b.unary(x, 3)]))))
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)""", page) and "@import" not in page and "url(" not in page


def test_search_text_names_ops_values_types_and_rows():
    b = GraphBuilder()
    x = b.tensor(3, 5, dynamic=True)
    data = planned(b.planner([x], [b.unary(x, 3, 5)]))
    text = search_text(data["calls"][0], data["values"])
    for word in ("#0", "aten.relu.default", "%0 f32[3, 5]", "delegate 0, node 0", "gpu"):
        assert word in text


# ---------------------------------------------------------------- Graphviz

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_][A-Za-z_0-9]*|->|[{}\[\];=,]|[0-9.]+|\s+')


def parse_dot(text):
    """Nodes, edges and clusters of a digraph; fails on anything that is not the part of the language we write."""
    tokens, at = [], 0
    while at < len(text):
        result = TOKEN.match(text, at)
        assert result, f"not DOT: {text[at : at + 40]!r}"
        at = result.end()
        if not result[0].isspace():
            tokens.append(result[0])
    assert tokens[0] == "digraph" and tokens[2] == "{" and tokens[-1] == "}"
    nodes: dict[str, str] = {}
    edges: list[tuple[str, str, str]] = []
    clusters: dict[str, list[str]] = {}
    open_braces: list[str] = []
    statement: list[str] = []
    for token in tokens[2:]:
        if token == "{":
            open_braces.append(statement[-1] if statement else "")
            statement = []
        elif token == "}":
            assert not statement
            open_braces.pop()
        elif token == ";":
            _statement(statement, nodes, edges, clusters, open_braces[-1])
            statement = []
        else:
            statement.append(token)
    assert not open_braces
    return nodes, edges, clusters


def _statement(words, nodes, edges, clusters, inside):
    body = words[: words.index("[")] if "[" in words else words
    assert "[" not in words or words[-1] == "]"
    if "->" in body:
        source, _, target = body
        edges.append((source, target, words[words.index("label") + 2]))
    elif "[" in words and body[0] not in ("node", "edge"):
        nodes[body[0]] = words[words.index("label") + 2]
        if inside:
            clusters.setdefault(inside, []).append(body[0])


def test_dot_has_every_call_and_edge_and_clusters_of_delegates():
    b = GraphBuilder()
    x = b.tensor(3, 5)
    first = b.unary(x, 3, 5)
    second = b.tensor(3, 5)
    b.call("aten.add.Tensor", (first, x, b.number(1)), second)
    graph = b.graph([x], [second])
    outside = replace(graph, steps=(graph.steps[0], replace(graph.steps[1], origin=Origin(1))))
    nodes, edges, clusters = parse_dot(to_dot(whole(method_data(outside, None, None))))
    assert set(nodes) == {"c0", "c1", "input0", "output0"} and clusters == {"cluster_0": ["c0"]}
    assert [(source, target) for source, target, _ in edges] == [
        ("input0", "c0"),
        ("c0", "c1"),
        ("input0", "c1"),
        ("c1", "output0"),
    ]
    assert edges[1][2] == '"%1 f32[3, 5]"' and nodes["c1"] == '"#1 add.Tensor"'


def test_dot_quotes_hostile_names():
    hostile = 'a"]; evil [label="\\N\n\\'
    b = GraphBuilder()
    x, y = b.tensor(3), b.tensor(3)
    b.call(hostile, (x,), y)
    nodes, edges, _ = parse_dot(to_dot(whole(method_data(b.graph([x], [y]), None, None), method=hostile)))
    assert set(nodes) == {"c0", "input0", "output0"} and len(edges) == 2


# ---------------------------------------------------------------- text and the command line


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (47_185_920, "47.2 MB"),
        (3 << 30, "3.22 GB"),
    ],
)
def test_sizes_for_people(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten.add.Tensor", "add.Tensor"),
        ("aten.cat.default", "cat"),
        ("aten::expand_copy.out", "expand_copy"),
        ("sym_size.int", "sym_size.int"),
        ("sdpa_with_kv_cache.default", "sdpa_with_kv_cache"),
        ("webpte.copy", "copy"),
        ("add", "add"),
        ("::", "::"),
        ("", ""),
    ],
)
def test_names_for_people(name, short):
    assert short_name(name) == short


@pytest.fixture
def program(tmp_path):
    """x + w in a file."""
    values = [VkTensor(F32, (5, 7)), VkTensor(F32, (7,), constant_id=0), VkInt(1), VkTensor(F32, (5, 7))]
    path = tmp_path / "add.pte"
    simple_pte(path, values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [np.arange(7, dtype="f4")])
    return path


def test_report_command_writes_page_and_graph(program, tmp_path, capsys):
    page, graph = tmp_path / "out.html", tmp_path / "out.dot"
    assert main(["inspect", str(program), "--html", str(page), "--dot", str(graph)]) == 0
    assert capsys.readouterr().out.count("1 call of forward") == 2
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    nodes, _, _ = parse_dot(graph.read_text(encoding="utf-8"))
    assert nodes["c0"] == '"#0 add.Tensor\\n1 stored, 28 B"'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--html", "/nonexistent/out.html"], "cannot write /nonexistent/out.html"),
        (["--html", "unused.html", "--method", "nobody"], "'nobody'"),
    ],
)
def test_report_command_fails_with_one_message(program, arguments, message, capsys):
    assert main(["inspect", str(program), *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out


def test_report_data_is_plain(program):
    report = report_data(program)
    text = json.dumps(report)
    assert report["method"] == "forward" and json.loads(text)["bytes"] == program.stat().st_size
    (constant,) = report["constants"]
    assert (constant["bytes"], constant["read"]) == (28, [0])
