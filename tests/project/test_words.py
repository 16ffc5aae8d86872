"""The check of words (tests/words.py), and the documents, which it holds to none of them."""

from __future__ import annotations

import pytest

from tests import page_lengths, words


@pytest.mark.parametrize(
    "place", ["docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"]
)
def test_documents_have_no_hit(place):
    assert not [str(hit) for path in words.files([words.ROOT / place]) for hit in words.hits(path)]


def test_hit_has_file_line_and_replacement(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nThe likeliest token.\n\n```output\nnobody\n```\n```python\nx = 1  # whoever\n```\n")
    assert words.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{page}:3: 'likeliest'; write: most probable",
        f"{page}:9: 'whoever'; write: the component that acts",
        "2 hits",
    ]


@pytest.mark.parametrize("text", ["The size.", "Whether it fits.", "`size` is a number."])
def test_docstring_of_function_without_verb_is_a_hit(tmp_path, monkeypatch, text):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    module = tmp_path / "src" / "module.py"
    module.parent.mkdir()
    module.write_text(f'"""The module."""\n\n\ndef size():\n    """{text}"""\n')
    assert [str(hit) for hit in words.hits(module)] == [
        f"src/module.py:5: {text.split()[0]!r}; write: an imperative verb, such as Return"
    ]


def test_docstring_of_function_with_verb_is_not_a_hit(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    module = tmp_path / "src" / "module.py"
    module.parent.mkdir()
    module.write_text('def size():\n    """Return, in bytes, the size."""\n')
    assert not list(words.hits(module))


@pytest.mark.parametrize("text", ["there is no such file", "is no longer used", "untold", "goes ongoing"])
def test_ordinary_english_is_not_a_hit(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert not list(words.hits(page))


@pytest.mark.parametrize(("place", "text", "reason"), words.ALLOWED)
def test_exceptions_are_in_use_and_have_a_reason(place, text, reason):
    assert reason and text in (words.ROOT / place).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("def test_every_file_is_read(): pass", ["test_every_file_is_read"]),
        ("def test_load_missing_file_raises(): pass", []),
        ("found = given.told", ["found", "given", "told"]),
        ("def f(*, wanted): return made", ["wanted", "made"]),
        ("from hypothesis import given\n\n\n@given()\ndef f(): pass", []),
        ("match x:\n    case [found]: pass", ["found"]),
        ("f(found=1)", []),
    ],
)
def test_names_of_tests_and_participles_are_hits(tmp_path, monkeypatch, code, names):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    module = tmp_path / "tests" / "test_module.py"
    module.parent.mkdir()
    module.write_text(code)
    assert sorted(hit.word for hit in words.hits(module)) == sorted(names)


def test_strings_of_tests_are_not_hits(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    module = tmp_path / "tests" / "test_module.py"
    module.parent.mkdir()
    module.write_text('"""Nobody."""\n\nx = "nobody"  # whoever\n')
    assert [(hit.line, hit.word) for hit in words.hits(module)] == [(3, "whoever"), (1, "Nobody")]


@pytest.mark.parametrize("place", words.KEYED)
def test_keyed_files_exist(place):
    assert (words.ROOT / place).exists()


def test_count_leaves_out_screens_and_generated_parts():
    text = "# A page\n\n```output\nmany words\n```\n\n```python\nx = 1\n```\n"
    text += "<!-- a: begin -->\n| 1 | 2 |\n<!-- a: end -->\n"
    assert page_lengths.count(text + "<!-- more -->\nwords\n<!-- end more -->\nIts end.\n") == 2 + 3 + 2


def test_lengths_beyond_a_limit_are_problems():
    words = dict.fromkeys(("docs/web.md", "docs/security.md", "CHANGELOG.md"), page_lengths.USER_PAGE)
    assert not list(page_lengths.problems(words))
    (longer,) = page_lengths.problems({"docs/web.md": page_lengths.USER_PAGE + 1})
    assert longer.startswith("docs/web.md: 2,001 words; at most 2,000")
    many = {f"docs/{n}.md": page_lengths.USER_PAGE for n in range(page_lengths.TOTAL // page_lengths.USER_PAGE + 1)}
    (total,) = page_lengths.problems(many)
    assert total == "handwritten pages: 56,000 words; at most 55,000"


def test_handwritten_pages_are_within_their_limits():
    assert not list(page_lengths.problems(page_lengths.lengths()))
