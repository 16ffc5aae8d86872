"""Markdown of a text that is still growing: what was printed once stays right, and no code of the text's gets out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from webpte.cli.chat.screen import blocks, render_block

TEXTS = st.text(alphabet="ab1 \n-*#`>|.:[]()_=~\\<é漢", max_size=60)
CODES = re.compile(r"\x1b\[[0-9;]*m")


@given(TEXTS)
def test_blocks_are_the_text(text):
    assert "\n".join(blocks(text)) == text


@given(TEXTS, TEXTS)
def test_markdown_more_text_changes_only_last_block(text, more):
    finished = blocks(text)[:-1]
    assert blocks(text + more)[: len(finished)] == finished


@given(TEXTS, st.integers(4, 80))
def test_lines_fit(text, columns):
    for block in blocks(text):
        assert all(cell_len(CODES.sub("", line)) <= columns for line in render_block(block, columns))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\ntwo", ["one", "two"]),  # as in a poem
        ("<div>a</div>", ["<div>a</div>"]),
        ("[here](http://a.b)", ["here (http://a.b)"]),
        ("```\n  x  y\n```", ["  x  y"]),
        ("# A title", ["A title"]),
        ("", []),
        ("\n\n", []),
    ],
)
def test_markdown_block_rendering(text, lines):
    assert [CODES.sub("", line) for line in render_block(text, 60)] == lines


def test_codes_in_a_text_are_marks():
    shown = "\n".join(render_block("a \x1b[2Jb `\x1b]0;x\x07` \x9b31m", 60))
    assert (
        "\x1b[2J" not in shown
        and "\x1b]" not in shown
        and "\x9b" not in shown
        and "\x07" not in shown
        and shown.count("\ufffd") == 3
    )
