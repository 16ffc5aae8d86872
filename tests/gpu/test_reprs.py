"""What programs and methods look like at a prompt and in a notebook."""

from __future__ import annotations

import html.parser

import pytest

import webpte
from tests.support.harness.counting import X, counting_pte
from tests.support.harness.named import Y, named_pte
from tests.support.harness.writer import Method, pte_file
from webpte import container as c
from webpte.runtime import ArgumentInfo

HOSTILE = "<img src=x onerror=alert(1)>"  # a name must be printable, or its file is refused; a path need not be


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert all(name == "style" for name, _ in attrs), attrs

    def handle_data(self, data):
        self.text += data


def page_of(shown) -> str:
    """The text of its HTML, which has no tags but those of a table."""
    parser = Tags()
    parser.feed(shown._repr_html_())
    assert parser.tags <= {"table", "caption", "tr", "th", "td"}
    return parser.text


@pytest.fixture
def program(tmp_path):
    with webpte.load(named_pte(tmp_path / "p.pte")) as program:
        yield program


def test_repr_program_shows_methods_and_shapes(program, tmp_path):
    assert repr(program).splitlines() == [
        f"Program {tmp_path / 'p.pte'} (1.8 kB)",
        "  forward(x: f32[<=5, <=7], y: f32[<=5, <=7]) -> sum: f32[<=5, <=7], out1: f32[<=5, <=7]",
        "  get_size() -> out0: int",
    ]
    assert "forward(x: f32[<=5, <=7]" in page_of(program)
    program.close()
    assert "closed" in repr(program)


def test_repr_method_shows_inputs_outputs_memory(program):
    method = program.method()
    text = repr(method)
    assert text.startswith("Method forward\n  inputs   x: f32[<=5, <=7], y: f32[<=5, <=7]\n  outputs  sum: ")
    assert f"\n  runs on  {method.adapter}" in text and " state 16 B" in text
    assert "activations 576 B" in page_of(method)
    assert "memory   state 16 B, all 16 B" in repr(method.fork())
    assert "memory   none" in repr(program.method("get_size"))
    assert repr(method.inputs) == "(<x: f32[<=5, <=7]>, <y: f32[<=5, <=7]>)"
    assert "f32[<=5, <=7]" in page_of(method.inputs[0])
    method.close()
    assert repr(method).startswith("Method forward (closed)")


def test_program_memory_counts_shared_weights_once(tmp_path):
    """Two methods that use the same weights have them once."""
    counting_pte(tmp_path / "one.pte")
    with webpte.load(tmp_path / "one.pte") as program:
        alone = program.memory("forward")
        whole = program.memory()
        assert whole.total == alone.total and whole.methods["forward"].kinds == alone.kinds
        program.method()(X)
        assert program.memory().kinds == whole.kinds
    with webpte.load(named_pte(tmp_path / "p.pte")) as program:
        whole = program.memory()
        assert list(whole.methods) == ["forward", "get_size"]
        assert whole.methods["get_size"].total == 0 and whole.total == whole.methods["forward"].total
        assert repr(whole).splitlines()[-1].startswith("  together  weights 16 B, state 16 B, ")
        assert "get_size" in page_of(whole) and "weights" in page_of(whole.methods["forward"])
        assert "\n  state        16 B\n" in repr(whole.methods["forward"])


def test_repr_saved_plan_shows_method(program, tmp_path):
    program.method()(Y, Y)
    program.method().save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan", [tmp_path / "p.pte"]) as plan:
        assert repr(plan).startswith(f"SavedPlan {tmp_path / 'plan'}\n  forward(x: f32[") and "forward(x" in page_of(
            plan
        )


def test_repr_bundle_shows_methods(tmp_path):
    with webpte.load(counting_pte(tmp_path / "p.pte")) as program:
        site = webpte.bundle(program, tmp_path / "site")
    with webpte.load(site) as bundle:
        assert repr(bundle).splitlines()[0].startswith(f"Bundle {site} (")
        assert "forward, planned for " in repr(bundle) and "forward" in page_of(bundle)
        assert bundle.memory().total == bundle.memory("forward").total > 0


def test_repr_hostile_names_are_escaped(tmp_path):
    path = tmp_path / "a\x1b[31m\n\u202e<b>.pte"
    pte_file(path, [Method(HOSTILE, values=[c.IntValue(7)], inputs=[], outputs=[0], instructions=[])])
    with webpte.load(path) as program:
        method = program.method(HOSTILE)
        for shown in (program, method, program.memory(), program.memory(HOSTILE), ArgumentInfo("<b>", "int")):
            text = repr(shown)
            assert "\x1b" not in text and "\u202e" not in text
            assert "<b>" in page_of(shown) or HOSTILE in page_of(shown)
        assert len(repr(program).splitlines()) == 2
