"""The ratchet counts what it says it counts, and fails above a limit."""

from __future__ import annotations

import subprocess

import pytest

from tests import ratchet

SOURCES = {
    "errors.py": "class FormatError(Error): pass\nclass ClosedError(Error): pass",
    "llm/a.py": "f(1, 2, 3, 4, 5, 6, 7)\nprint(1, 2, 3, 4, 5, 6, 7)\nf(*x)",
    "llm/b.py": "def g() -> dict[str, Any]: return other._hidden, self._own\nself._own = step._replace(a=1)",
    "llm/c.py": "FormatError('x')\nFormatError('x', code='y')\nClosedError('x')",
    "llm/d.py": "FormatError(f'a: expected b, got {c}', code='y')\nFormatError(expected='b', got=c, code='y')",
    "plan/e.py": "x = 1\ny = 2\n",
    "llm/f.py": "\n" * 451,
}


@pytest.fixture
def sources(monkeypatch):
    monkeypatch.setattr(ratchet, "modules", lambda: SOURCES)
    ratchet.nodes.cache_clear()
    yield
    ratchet.nodes.cache_clear()


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("positional_calls", ["llm/a.py:1: f (7)"]),
        ("dict_results", ["llm/b.py:1: g"]),
        ("private_access", ["llm/b.py:1: other._hidden"]),
        ("errors_without_code", ["llm/c.py:1: FormatError"]),
        ("typed_expectations", ["llm/d.py:1: FormatError"]),
        ("core_lines", ["plan/e.py:1", "plan/e.py:2"]),
        ("long_modules", ["llm/f.py: 451"]),
    ],
)
def test_count_of_planted_sources_has_the_planted_place(sources, name, places):
    assert list(ratchet.COUNTS[name]()) == places


def test_limits_name_every_count():
    assert ratchet.limits().keys() == ratchet.COUNTS.keys()


@pytest.mark.parametrize(("limit", "code"), [(1, 0), (0, 1)])
def test_ratchet_above_its_limit_fails(sources, monkeypatch, capsys, limit, code):
    monkeypatch.setattr(ratchet, "limits", lambda: {"long_modules": limit})
    assert ratchet.main(["long_modules"]) == code
    assert ("FAILED" in capsys.readouterr().out) == bool(code)


def test_lower_writes_lower_counts_only(tmp_path, monkeypatch):
    table = tmp_path / "ratchet.toml"
    table.write_text('[long_modules]\nlimit = 5\nwhy = "a"\n\n[core_lines]\nlimit = 7\n', encoding="utf-8")
    monkeypatch.setattr(ratchet, "LIMITS", table)
    ratchet.lower({"long_modules": 3, "core_lines": 9})
    assert ratchet.limits() == {"long_modules": 3, "core_lines": 7}
    assert 'why = "a"' in table.read_text(encoding="utf-8")


def test_features_are_the_files_of_src_and_web_of_their_commits(tmp_path, monkeypatch):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    git("init")
    for number, (file, message) in enumerate([
        ("src/webpte/a.py", "a\n\nFeature: mamba"),
        ("web/src/b.js", "b\n\nText.\n\nFeature: mamba"),
        ("tests/c.py", "c\n\nFeature: mamba"),
        ("src/webpte/d.py", "d"),
    ]):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(str(number), encoding="utf-8")
        git("add", ".")
        git("commit", "-m", message)
    monkeypatch.setattr(ratchet, "ROOT", tmp_path)
    assert ratchet.features() == {"mamba": {"src/webpte/a.py", "web/src/b.js"}}
