"""The file beside a program that shows what it is for."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.harness.errors import raises
from webpte.errors import FormatError, InputError, UnsupportedError
from webpte.llm import Tokenizer
from webpte.task_file import MAX_TASK_FILE_BYTES, read_task, task_path, write_task
from webpte.vision.images import open_images

FIELDS = {
    "count": 3,
    "scale": 0.5,
    "mean": [0.5, 1, 2.5],
    "size": [8, 16],
    "normalize": True,
    "pooling": "mean",
    "labels": ["cat", "dog"],
    "prompts": {"query": "query: "},
    "ids": {"en": 7},
    "nothing": None,
}
READ = {
    "count": lambda task: task.integer("count", 1, 9),
    "scale": lambda task: task.number("scale"),
    "mean": lambda task: task.numbers("mean", 3),
    "size": lambda task: task.integers("size", 2),
    "normalize": lambda task: task.boolean("normalize"),
    "pooling": lambda task: task.choice("pooling", ("mean", "cls")),
    "labels": lambda task: task.strings("labels"),
    "prompts": lambda task: task.string_map("prompts"),
    "ids": lambda task: task.integer_map("ids"),
}


@pytest.fixture
def program(tmp_path):
    return tmp_path / "model.pte"


def test_task_file_round_trips(program):
    assert write_task(program, "embedding", FIELDS) == task_path(program) == program.parent / "model.task.json"
    task = read_task(program, "embedding")
    assert {name: read(task) for name, read in READ.items()} == {
        **{name: FIELDS[name] for name in READ},
        "mean": (0.5, 1.0, 2.5),
        "size": (8, 16),
    }
    assert not task.has("nothing") and not task.has("absent") and task.has("count")
    task.check_all_read()


def test_task_file_unread_field_is_refused(program):
    write_task(program, "embedding", {"pooling": "mean", "whitening": True})
    task = read_task(program, "embedding")
    task.choice("pooling", ("mean",))
    with raises(FormatError, "whitening", code="unknown_field"):
        task.check_all_read()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", 0),
        ("count", 10),
        ("count", True),
        ("count", 2.0),
        ("scale", "half"),
        ("scale", float("nan")),
        ("mean", [1, 2]),
        ("mean", [1, 2, float("inf")]),
        ("mean", 1),
        ("size", [8, 0]),
        ("size", [8, 16, 32]),
        ("normalize", 1),
        ("pooling", "weighted"),
        ("pooling", ["mean"]),
        ("labels", ["cat", 3]),
        ("labels", "cat"),
        ("prompts", {"query": 1}),
        ("prompts", []),
        ("ids", {"en": True}),
    ],
)
def test_task_file_wrong_value_is_named(program, name, value):
    write_task(program, "embedding", FIELDS | {name: value})
    with raises(FormatError, "model.task.json", f"{name}: ", code="invalid_field"):
        READ[name](read_task(program, "embedding"))


def test_task_file_missing_field_is_named(program):
    write_task(program, "embedding", {})
    with raises(FormatError, "model.task.json", "pooling", code="missing_field"):
        READ["pooling"](read_task(program, "embedding"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"task": 3}', "{", "[" * 100_000, "\ud800"])
def test_task_file_invalid_is_refused(program, text):
    task_path(program).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(FormatError) as caught:
        read_task(program, "embedding")
    assert "model.task.json" in str(caught.value) and caught.value.reason in ("invalid_json", "invalid_task_file")


def test_task_file_too_large_is_not_read(program):
    with open(task_path(program), "wb") as file:
        file.truncate(MAX_TASK_FILE_BYTES + 1)
    with raises(FormatError, "model.task.json", MAX_TASK_FILE_BYTES + 1, MAX_TASK_FILE_BYTES, code="file_too_large"):
        read_task(program, "embedding")


def test_task_file_missing_or_other_task_is_refused(program):
    with raises(InputError, "model.task.json", program, "webpte export", code="missing_task_file"):
        read_task(program, "embedding")
    task_path(program).write_text(json.dumps({"task": "speech"}))
    with raises(InputError, program, "'speech'", "'embedding'", code="wrong_task"):
        read_task(program, "embedding")


def test_task_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with raises(UnsupportedError, "tokenizers", "webpte[tasks]", code="missing_package"):
        Tokenizer.load("model.tokenizer.json", extra="tasks")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with raises(UnsupportedError, "pillow", "webpte[tasks]", code="missing_package"):
        open_images(["cat.png"])
