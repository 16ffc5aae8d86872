"""Chat templates out of downloaded files: what would run, grow or nest without end is a typed error, soon and small."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.work import counted_calls
from webpte.llm import template_sandbox
from webpte.llm.prompts import render_chat

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes\nno"}]
MAX_CALLS = 100_000_000  # of a rendering, which may take a million steps and a second of processor time
MEGABYTES = 400  # of memory, in a process of its own
MAX_CPU_SECONDS = 60  # of one that hangs in a single call; a rendering may use one

DOUBLING = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}"


def doubled(start: str, step: str, end: str = "{{ ns.x|length }}") -> str:
    return DOUBLING.replace("START", start).replace("STEP", step) + end


BOMBS = {
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a loop that filters": "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}",
    "a long text": "{{ 'a' * (10**9) }}",
    "a long text, measured": "{{ ('a' * (10**9))|length }}",
    "a long text by a constant": "{% set x = 'abc' * 1000000000 %}",
    "a long list": "{{ ([0] * 500000000)|length }}",
    "a power": "{{ 10 ** (10 ** 8) }}",
    "powers of powers": doubled("9", "ns.x * ns.x", ""),
    "percent": "{{ '%2000000000d' % 1 }}",
    "percent with a star": "{{ '%*d' % (2000000000, 1) }}",
    "percent as a filter": "{{ '%2000000000d'|format(1) }}",
    "format": "{{ '{:>2000000000}'.format(1)|length }}",
    "format in a format": "{{ '{:>{}}'.format(1, 2000000000)|length }}",
    "format_map": "{{ '{x:>2000000000}'.format_map({'x': 1})|length }}",
    "format of many": "{{ ('{0}' * 100000).format('a' * 100000)|length }}",
    "doubled text": doubled("'ab'", "ns.x + ns.x"),
    "doubled by ~": doubled("'ab'", "ns.x ~ ns.x"),
    "doubled by join": doubled("'ab'", "[ns.x, ns.x]|join('')"),
    "doubled by str.join": doubled("'ab'", "''.join([ns.x, ns.x])"),
    "doubled by replace": doubled("'ab'", "ns.x|replace('a', 'aa')"),
    "doubled by str.replace": doubled("'ab'", "ns.x.replace('a', 'aa')"),
    "doubled by a block": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}"
    "{% endset %}{% set ns.x = y %}{% endfor %}",
    "doubled lists": doubled("[0]", "ns.x + ns.x"),
    "lists in lists": doubled("[0]", "[ns.x, ns.x]", "{{ ns.x }}"),
    "lists in lists as JSON": doubled("[0]", "[ns.x, ns.x]", "{{ ns.x|tojson }}"),
    "tuples compared": doubled("(0,)", "(ns.x, ns.x)", "{{ ns.x == ns.x }}"),
    "mappings in mappings": doubled("{}", "{'a': ns.x, 'b': ns.x}", "{{ ns.x }}"),
    "mappings by call": doubled("{}", "dict(a=ns.x, b=ns.x)", "{{ ns.x }}"),
    "a text of its own in a loop": "{% for i in range(99999) %}" + "x" * 10000 + "{% endfor %}",
    "a text of its own in a block": "{% set y %}{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}{% endset %}",
    "center": "{{ 'a'.center(10**9) }}",
    "center as a filter": "{{ 'a'|center(10**9) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ '\\t'.expandtabs(10**9) }}",
    "to_bytes": "{{ (5).to_bytes(10**9, 'big') }}",
    "translate": "{{ ('a' * 10000).translate({97: 'a' * 100000}) }}",
    "indent": "{{ 'a\\nb'|indent(10**9) }}",
    "indent by a text": "{{ ('\\n' * 100000)|indent('a' * 100000) }}",
    "batch": "{{ [1]|batch(10**9, 0)|list }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "round": "{{ 1.5|round(10**9, 'ceil') }}",
    "JSON indented": "{{ range(10000)|list|tojson(indent=10000) }}",
    "sum of lists": "{{ ([[0]] * 99999)|sum(start=[]) }}",
    "a list of characters": "{{ ('a' * 40000000)|list }}",
    "escaped": "{{ ('<' * 40000000)|e }}",
    "lipsum": "{{ lipsum(n=10**6) }}",
    "autoescape": "{% autoescape 'a' * 10**9 %}{% endautoescape %}",
    "autoescape by a filter": "{% autoescape 'a'|center(10**9) %}{% endautoescape %}",
    "a macro that calls itself": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "deep brackets": "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
    "deep lists": "{{ " + "[" * 2000 + "]" * 2000 + " }}",
    "deep blocks": "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "deep loops": "{% for i in [1] %}" * 100 + "{% endfor %}" * 100,
    "a long sum": "{{ " + "+".join("1" * 5000) + " }}",
    "a long template": "x" * (1 << 20),
    "a long date": "{{ strftime_now('%c' * 100000) }}",
    "a long number": "{{ " + "9" * 5000 + " }}",
}


@pytest.mark.parametrize("template", BOMBS.values(), ids=BOMBS)
def test_template_bomb_raises_typed_error(template):
    started = time.thread_time()
    with counted_calls(MAX_CALLS), pytest.raises(webpte.FormatError) as caught:
        render_chat(template, MESSAGES)
    assert caught.value.reason in ("template_limit", "template_failed")  # a limit of ours, or of the sandbox
    assert time.thread_time() - started < MAX_CPU_SECONDS


ERRORS = {
    "zero": "{{ 1 / 0 }}",
    "types": "{{ messages + 1 }}",
    "undefined": "{{ foo.bar.baz }}",
    "no loader": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "a date by a number": "{{ strftime_now(5) }}",
    "syntax": "{% if %}",
    "no filter": "{{ 1|nothing }}",
    "an unsafe method": "{{ messages.append(1) }}",
    "bytes": "{{ 'a'.encode() }}",
}


@pytest.mark.parametrize("template", ERRORS.values(), ids=ERRORS)
def test_template_exception_raises_typed_error(template):
    with raises(webpte.FormatError, code="template_failed"):
        render_chat(template, MESSAGES)


ORDINARY = {
    "{{ messages|map(attribute='role')|join(', ') }}": "user, assistant",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}": "1",
    "{{ messages[1:][0]['content'].split('\\n')[-1] }}": "no",
    "{{ '%s-%02d' % ('a', 3) }} {{ '{:>5}|{x}'.format(7, x=1) }}": "a-03     7|1",
    "{{ messages[0]|tojson }}": '{"role": "user", "content": "hi"}',
    "{{ {'a': '<é>'}|tojson(indent=2) }}": '{\n  "a": "<é>"\n}',
    "{{ messages[1].content|indent(2) }}": "yes\n  no",
    "{{ (2 ** 10 + 3 * 4) ~ 'x' * 3 }}": "1036xxx",
    "{{ [1, 2] + [3] }} {{ (1, 2) * 2 }}": "[1, 2, 3] (1, 2, 1, 2)",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}": "2",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}": (
        "assistant"
    ),
    "{% macro say(m) %}<{{ m.content|trim }}>{% endmacro %}{{ say(messages[0]) }}": "<hi>",
    "{% for k, v in messages[0]|items %}{{ k }}={{ v }};{% endfor %}": "role=user;content=hi;",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}": "hi",
    "{{ messages[0].content.replace('h', 'H').center(6, '.') }}": "..Hi..",
    "{{ tools is none and documents is none }}": "True",
}


@pytest.mark.parametrize(("template", "want"), ORDINARY.items())
def test_ordinary_templates_are_left_alone(template, want):
    assert render_chat(template, MESSAGES) == want


def test_template_long_conversation_renders(monkeypatch):
    monkeypatch.setattr(template_sandbox, "MAX_CPU_SECONDS", 60)  # its steps and characters are what must fit
    messages = [{"role": "user", "content": "word " * 400}, {"role": "assistant", "content": "word " * 400}] * 500
    template = "{% for m in messages %}{{ '<' + m.role + '>' + m.content|trim + '</' + m.role + '>' }}{% endfor %}"
    assert len(render_chat(template, messages)) > 1_900_000


PIECES = ["{{", "}}", "{%", "%}", " for i in ", " range(9) ", " messages ", " if ", " endfor ", " endif ", "'a'", " * "]
PIECES += ["99", "|join", "|tojson", "(", ")", "[", "]", ".content", " set x = ", " ~ ", " ** ", "x", "\n", " i "]


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_template_random_text_raises_only_typed_errors(pieces):
    with contextlib.suppress(webpte.Error):
        render_chat("".join(pieces), MESSAGES)
