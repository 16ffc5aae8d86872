"""Chat templates render in the page as natively; what could differ is refused where a bundle is written."""

from __future__ import annotations

import datetime
import random

import pytest

import webpte
from tests.studies.in_page.template_corpus import FAMILIES, IDIOMS, TEMPLATES, conversations
from tests.studies.in_page.templates import differences
from tests.support.harness.errors import raises
from tests.support.harness.node import ask_node
from webpte.bundles.page_support import ABSENT_METHODS, FILTERS, TESTS, check_template

USER = [{"role": "user", "content": "hi"}]


def test_templates_of_families_and_idioms_render_as_natively():
    assert len(FAMILIES) == 13
    assert len(IDIOMS) >= 50
    assert list(differences(TEMPLATES, conversations(seed=1, count=3))) == []


def test_templates_of_the_corpus_are_accepted():
    for template in TEMPLATES.values():
        check_template(template)


def test_template_names_of_bundler_equal_those_of_page():
    names = ask_node("language.mjs", "names", None)
    assert set(names["filters"]) == FILTERS
    assert set(names["tests"]) == TESTS
    assert set(names["absent"]) >= ABSENT_METHODS


@pytest.mark.parametrize(
    ("template", "construct"),
    [
        ("{{ 'x' | urlencode }}", "the filter urlencode"),
        ("{{ messages | map('wordcount') | list }}", "the filter wordcount"),
        ("{{ messages is filter }}", "the test filter"),
        ("{{ messages | select('escaped') | list }}", "the test escaped"),
        ("{{ 'x'.casefold() }}", "the method casefold"),
        ("{{ 'x'['isnumeric']() }}", "the method isnumeric"),
        ("{% block a %}{% endblock %}", "the tag block"),
        ("{% autoescape true %}{% endautoescape %}", "the tag autoescape"),
        ("{% for a in [[1]] recursive %}{% endfor %}", "a recursive loop"),
        ("{{ '{:>5}'.format(1) }}", "the format"),
        ("{{ '%e' % 1.5 }}", "the format %e"),
        ("{{ '%o' | format(8) }}", "the format %o"),
        ("{{ strftime_now('%G') }}", "the date format %G"),
        ("{{ 'ff' | int(0, 16) }}", "the argument base"),
        ("{{ 'x' | safe | upper }}", "the filter upper after safe"),
    ],
)
def test_templates_that_a_page_cannot_render_are_refused_by_name(template, construct):
    with raises(webpte.UnsupportedError, construct, code="template_construct"):
        check_template(template)
    assert "error" in ask_node("language.mjs", "render", [[template, USER, {}]])[0]


def test_dates_are_written_as_natively():
    chance, cases = random.Random(4), []
    forms = [f"%{letter}" for letter in "%ABCDFHIMRSTUWXYabcdehjmnptuwxyzZ"] + [
        "%-d",
        "%-m",
        "%-H",
        "%-I",
        "%-j",
        "%d %b %Y",
    ]
    for form in forms:
        cases += [(chance.randrange(86_400, 4_000_000_000), form) for _ in range(20)]
    expected = [datetime.datetime.fromtimestamp(seconds).strftime(form) for seconds, form in cases]
    assert ask_node("language.mjs", "dates", cases) == expected
