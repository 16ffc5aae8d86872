"""Text on its way in and out of a language model: streams, stop strings, chat templates. No model needed."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from tests.support.models.tokenizers import byte_level
from webpte.llm.engine.stop_strings import StopStringBuffer
from webpte.llm.prompts import render_chat
from webpte.llm.tokenizer import TextStream, Tokenizer


class Bytes:
    """A tokenizer whose tokens are bytes, as byte-level BPE falls back to."""

    def decode(self, tokens, *, specials=False):
        return bytes(tokens).decode("utf-8", "replace")


@given(st.text())
def test_text_stream_yields_whole_characters(text):
    stream = TextStream(Bytes())  # type: ignore[arg-type]
    pieces = [stream.push(byte) for byte in text.encode("utf-8", "surrogatepass")]
    whole = "".join(pieces) + stream.flush()
    assert whole == bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")
    if "\ufffd" not in whole:
        assert all("\ufffd" not in piece for piece in pieces)


def test_text_stream_holds_back_incomplete_character():
    stream = TextStream(Bytes())  # type: ignore[arg-type]
    assert [stream.push(b) for b in "é!".encode()] == ["", "é", "!"]
    assert stream.push(0xE2) == "" and stream.flush() == "\ufffd"


@given(st.text("ab<>", max_size=30), st.lists(st.text("ab<>", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_strings_never_leak_and_nothing_else_is_lost(text, stop, data):
    hold = StopStringBuffer(stop)
    out, rest = "", text
    while rest and not hold.matched:
        count = data.draw(st.integers(1, len(rest)))
        out += hold.push(rest[:count])
        rest = rest[count:]
    if not hold.matched:
        out += hold.flush("")
    cuts = [text.find(s) for s in stop if s in text]
    if not cuts:
        assert out == text and not hold.matched
    else:
        assert hold.matched and all(s not in out for s in stop)
        assert text.startswith(out)
        assert hold.held.startswith(tuple(stop)) and (out + hold.held + rest) == text


def test_special_tokens_are_written_where_that_is_asked_for():
    tokenizer = byte_level()
    tokens = tokenizer.encode("a<|im_end|>b", parse_special=True)
    for specials, text in ((False, "ab"), (True, "a<|im_end|>b")):
        stream = TextStream(tokenizer, specials=specials)
        assert "".join(map(stream.push, tokens)) + stream.flush() == text


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_templates_render_messages():
    assert render_chat(CHATML, [{"role": "user", "content": "hi"}]) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append({'role': 'system', 'content': 'x'}) }}",
        "{{ undefined_function() }}",
        "{% for %}",
    ],
)
def test_templates_from_files_are_confined(template):
    messages = [{"role": "user", "content": "hi"}]
    try:
        rendered = render_chat(template, messages)
    except webpte.Error:
        rendered = ""
    assert "class" not in rendered
    assert messages == [{"role": "user", "content": "hi"}]


def test_chat_template_may_refuse_messages():
    with raises(webpte.InputError, "roles must alternate", code="template_refused"):
        render_chat("{{ raise_exception('roles must alternate') }}", [])


def test_messages_need_role_and_content():
    with raises(webpte.InputError, "messages[1]", "role", "content", code="missing_field"):
        render_chat(CHATML, [{"role": "user", "content": ""}, {"role": "user"}])


def test_long_text_releases_the_gil_and_has_the_tokens_of_its_parts():
    tokenizer = byte_level()
    text = "Good day, \u4e2d\u6587 \U0001f600 and more. " * 20_000
    results: list[list[int]] = []
    encoding = threading.Thread(target=lambda: results.append(tokenizer.encode(text)))
    encoding.start()
    count = 0
    while encoding.is_alive():
        count += 1
    encoding.join()
    assert count > 1000, "this thread has not run beside the other"
    assert results[0] == list(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)


def test_token_bytes_are_within_bound():
    tokenizer = byte_level()
    size = tokenizer.backend_tokenizer.get_vocab_size()
    assert tokenizer.max_token_bytes >= max(len(data) for data in tokenizer.token_bytes(size) if data is not None)


@pytest.mark.parametrize(
    ("prefix", "merge"),
    [("##", ["a", "b"]), ("##", "a b"), ("#", ["a", ""]), ("x", ["a", "\u4e2d"]), ("\\u0020\\u0020", "a b")],
)
def test_merges_that_abort_the_package_are_refused(tmp_path, prefix, merge):
    """They would end the process: nothing could catch it."""
    path = tmp_path / "tokenizer.json"
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [merge]}
    text = json.dumps({"version": "1.0", "added_tokens": [], "model": model})
    for key in ("continuing_subword_prefix", "continuing\\u005fsubword\\u005Fprefix"):
        path.write_text(text.replace('"type": "BPE"', f'"type": "BPE", "{key}": "{prefix}"'))
        with raises(webpte.FormatError, code="merges"):
            Tokenizer.load(path)


def test_merges_with_their_prefix_are_read(tmp_path):
    path = tmp_path / "tokenizer.json"
    model = {
        "type": "BPE",
        "vocab": {"a": 0, "##b": 1, "ab": 2},
        "merges": [["a", "##b"]],
        "continuing_subword_prefix": "##",
    }
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    assert Tokenizer.load(path).encode("ab") == [2]
