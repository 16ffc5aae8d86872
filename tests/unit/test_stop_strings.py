"""Stop strings: the text that they cut, their cost per character, and their limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from webpte.llm.engine.output import Piece
from webpte.llm.engine.stop_strings import StopStringBuffer
from webpte.llm.settings import sampling_params_from
from webpte.llm.tokenizer import TextStream


class NaiveBuffer:
    """The definition of `StopStringBuffer`: it searches all of the held text for all strings with each push."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = stop
        self.held = ""
        self.matched = False

    def push(self, text: str) -> str:
        self.held += text
        positions = [position for string in self._stop if (position := self.held.find(string)) >= 0]
        if positions:
            self.matched = True
            return self._take(min(positions))
        return self._take(len(self.held) - max(map(self._partial, self._stop), default=0))

    def flush(self, text: str) -> str:
        out = self.push(text)
        return out if self.matched else out + self._take(len(self.held))

    def _partial(self, string: str) -> int:
        return max(length for length in range(len(string)) if self.held.endswith(string[:length]))

    def _take(self, count: int) -> str:
        out, self.held = self.held[:count], self.held[count:]
        return out


@given(
    st.lists(st.text("ab", min_size=1, max_size=9), max_size=4) | st.lists(st.text("abc", min_size=1), max_size=4),
    st.lists(st.text("abc", max_size=9)),
)
def test_buffer_of_any_chunks_equals_naive_search(stop, chunks):
    buffer, naive = StopStringBuffer(stop), NaiveBuffer(stop)
    for chunk in chunks:
        assert (buffer.push(chunk), buffer.held, buffer.matched) == (naive.push(chunk), naive.held, naive.matched)
    assert (buffer.flush("a"), buffer.held, buffer.matched) == (naive.flush("a"), naive.held, naive.matched)


def test_buffer_of_several_matches_in_a_chunk_cuts_at_the_first_position():
    buffer = StopStringBuffer(["cd", "bcde", "e"])
    assert (buffer.push("abcdef"), buffer.held, buffer.matched) == ("a", "bcdef", True)
    assert (buffer.push("g"), buffer.held) == ("", "bcdefg")


def lines_run(function: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes: a measure of work that no other process changes."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def push_all(buffer: StopStringBuffer, chunks: Sequence[str]) -> None:
    for chunk in chunks:
        buffer.push(chunk)
    assert not buffer.matched


@pytest.mark.parametrize("kind", ["held", "given up"])
def test_cost_per_character_does_not_grow_with_strings_or_held_text(kind):
    costs = []
    for length in (200, 1600):
        stop = [letter + "x" * length for letter in "abc"] + ["#" * length + "!"]
        chunk = "#" * 10 if kind == "held" else "#" * 9 + "-"  # never ends a string; the second gives up each time
        chunks = [chunk] * (length // 10)
        buffer = StopStringBuffer(stop)
        costs.append(lines_run(lambda: push_all(buffer, chunks)) / length)  # noqa: B023 - called at once
    assert costs[1] <= 1.2 * costs[0]


def test_cost_of_compiling_is_in_proportion_to_length():
    def compile_strings(length: int) -> Callable[[], object]:
        return lambda: StopStringBuffer(["ab" * length, "b" * length, "ab" * (length // 2) + "c"])

    assert lines_run(compile_strings(1600)) <= 8.8 * lines_run(compile_strings(200))


class Hashes:
    """A tokenizer whose token n is a character repeated: 80 times for 0, which is `#`, once for the others."""

    def decode(self, tokens: Sequence[int], *, specials: bool = False) -> str:
        return "".join("#" * 80 if token == 0 else chr(token) for token in tokens)


@pytest.mark.parametrize("inside", [False, True])
def test_cost_of_parsing_tool_calls_does_not_grow_with_the_text(inside):
    from webpte.llm import ToolFormat
    from webpte.llm.engine.stop_strings import StopStrings
    from webpte.serve.openai.tools import CallSyntax, ToolCallParser

    text: Any = SimpleNamespace(tokenizer=Hashes(), stop_tokens=frozenset())
    costs = []
    for length in (20, 160):  # tokens that are held back
        stop = ["#" * 80 * length + "!", "?"]
        format = ToolFormat("object", "<call>", "#" * 80 * length + "</call>" if inside else "</call>")
        syntax = CallSyntax(format, {}, StopStrings((format.begin, *stop)), StopStrings((format.end,)))
        parser = ToolCallParser(text, syntax)
        for character in "<call>" if inside else "":
            assert not any(delta.text for delta in parser.push(Piece("", ord(character))))  # type: ignore[union-attr]
        costs.append(lines_run(lambda: [list(parser.push(Piece("", 0))) for _ in range(length)]) / length)  # noqa: B023
    assert costs[1] <= 1.2 * costs[0]


class CountingBytes:
    """A tokenizer whose tokens are bytes. It counts how many it decodes at once."""

    most = 0

    def decode(self, tokens: Sequence[int], *, specials: bool = False) -> str:
        self.most = max(self.most, len(tokens))
        return bytes(tokens).decode("utf-8", "replace")


@given(
    st.lists(st.sampled_from([0x80, 0xE2, 0x82, 0xAC, 0xF0, 0x41]), max_size=300)
    | st.lists(st.sampled_from([0x80, 0xE2, 0x82]), min_size=70)
)
def test_stream_of_any_bytes_is_their_text(data):
    tokenizer: Any = CountingBytes()
    stream = TextStream(tokenizer)
    assert "".join(map(stream.push, data)) + stream.flush() == bytes(data).decode("utf-8", "replace")


def test_stream_of_invalid_bytes_decodes_few_tokens_at_a_time():
    tokenizer: Any = CountingBytes()
    stream = TextStream(tokenizer)
    text = "".join(stream.push(0x80) for _ in range(1000))
    assert text + stream.flush() == "\ufffd" * 1000 and len(text) > 900
    assert tokenizer.most <= 140


def test_stop_strings_at_the_bound_are_accepted():
    assert sampling_params_from({"stop": ["x" * 256] * 16}).stop == ("x" * 256,) * 16


@pytest.mark.parametrize(
    ("stop", "code", "numbers"),
    [
        (["x"] * 17, "too_many", (16, 17)),
        ("x" * 4097, "too_long", (4096, 4097)),
        (["x" * 300] * 16, "too_long", (4800,)),
    ],
)
def test_stop_strings_beyond_the_bound_are_refused_with_both_numbers(stop, code, numbers):
    with raises(webpte.InputError, "stop", *numbers, code=code):
        sampling_params_from({"stop": stop})
