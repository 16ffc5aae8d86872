"""Options of batch jobs, input tables and output folders. No model is loaded."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.batch.job import BatchReport, ProgressMeter, _check_columns
from webpte.batch.output import (
    block_is_intact,
    block_name,
    changed_fields,
    check_job,
    read_block_counts,
    remove_stale_blocks,
    with_result,
    write_block,
)
from webpte.batch.results import BatchResult
from webpte.batch.runners import text_or_tokens
from webpte.batch.tables import InputTables, RowBlock
from webpte.batch.task_spec import TaskSpec, task_spec, template_fields
from webpte.batch.worker import BlockStats, input_columns
from webpte.cli.batch import summary
from webpte.errors import InputError
from webpte.progress import Progress


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        ({"task": "embbed"}, "unknown_choice", ["task", "'embbed'", "'embed', 'generate'", "'embed'?"]),
        ({"colum": "x"}, "unknown_option", ["'colum'", "'column'?"]),
        ({"column": 3}, "wrong_type", ["column", " 3"]),
        ({"truncate": 1, "task": "embed"}, "wrong_type", ["truncate", " 1"]),
        ({"truncate": True}, "other_task", ["truncate", "'embed'", "'generate'"]),
        ({"task": "embed", "system": "x"}, "other_task", ["system", "'generate'"]),
        ({"task": "embed", "settings": {"seed": 3}}, "other_task", ["settings", "'generate'"]),
        ({"task": "embed", "prompt": "a", "prefix": "b"}, "conflicting_options", ["prompt", "prefix"]),
        ({"system": "x", "raw": True}, "conflicting_options", ["system", "raw"]),
        ({"settings": {"temprature": 1}}, "unknown_option", ["'temprature'", "temperature?"]),
        ({"settings": 3}, "wrong_type", ["settings", "got 3"]),
        ({"prompt_template": "Say hello"}, "no_column", ["prompt_template", "{text}"]),
        ({"prompt_template": "{text.__class__}"}, "invalid_template", ["{text.__class__}"]),
        ({"prompt_template": "{text!r}"}, "invalid_template", ["{text!r}"]),
        ({"prompt_template": '{"a": {text}}'}, "invalid_template", ["prompt_template"]),
        ({"prompt_template": "{text"}, "invalid_template", ["prompt_template", "'}'"]),
        ({"column": "error"}, "column_conflict", ["error ", "output_column"]),
        ({"output_column": "text"}, "column_conflict", ["text ", "output_column"]),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path, options, code, expected):
    with raises(webpte.InputError, *expected, code=code):
        task_spec(tmp_path / "model.pte", options)


def test_task_spec_follows_task_file_of_program(tmp_path):
    program = tmp_path / "model.pte"
    assert task_spec(program, {}).task == "generate"
    (tmp_path / "model.task.json").write_text('{"task": "embedding"}')
    assert task_spec(program, {}).task == "embed"
    (tmp_path / "model.task.json").write_text('{"task": "speech"}')
    with raises(webpte.InputError, program, "'speech'", code="unsupported_task"):
        task_spec(program, {})
    (tmp_path / "model.task.json").write_text("[")
    with raises(webpte.FormatError, "model.task.json", code="invalid_task_file"):
        task_spec(program, {})


def test_options_that_mean_the_same_are_the_same(tmp_path):
    plain = TaskSpec("generate")
    assert plain.identity() == TaskSpec("generate", settings={"seed": 0, "stop": [], "max_new_tokens": 1024}).identity()
    assert plain.identity() != TaskSpec("generate", settings={"seed": 1}).identity()
    biased = TaskSpec("generate", settings={"logit_bias": {3: -1.0}})
    assert task_spec(tmp_path / "model.pte", biased.options()) == biased


def test_image_column_is_read_after_those_of_the_prompt():
    assert TaskSpec("generate", image_column="picture").input_columns == ("text", "picture")
    spec = TaskSpec("generate", prompt_template="{title}?", image_column="picture")
    assert spec.input_columns == ("title", "picture") and spec.text_columns == ("title",)
    with raises(InputError, "image_column", code="conflicting_options"):
        TaskSpec("generate", image_column="picture", raw=True)
    with raises(InputError, "image_column", code="other_task"):
        TaskSpec("classify", image_column="picture")


def test_prompt_template_names_columns():
    assert template_fields("{a} and {b}: {{not this}} {a}") == ("a", "b")
    assert TaskSpec("generate", prompt_template="{title}: {body}").input_columns == ("title", "body")


@pytest.mark.parametrize(
    ("value", "result"),
    [("ä", "ä"), ("ä".encode(), "ä"), ([1, 2], [1, 2]), ((3,), [3])],
)
def test_values_that_are_texts_or_tokens(value, result):
    assert text_or_tokens(value) == result


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        (None, "null", []),
        (float("nan"), "null", []),
        (b"a\xff", "invalid_utf8", ["0xff"]),
        (3, "wrong_type", ["got 3"]),
        ([], "wrong_type", ["[]"]),
        ([True], "wrong_type", []),
        (["a"], "wrong_type", []),
        ({"a": 1}, "wrong_type", ["dict"]),
    ],
)
def test_batch_value_wrong_type_states_reason(value, code, expected):
    with raises(webpte.InputError, *expected, code=code):
        text_or_tokens(value)


# ---------------------------------------------------------------- files


def test_blocks_are_rows_of_row_groups_in_the_order_of_files(tmp_path):
    for name, count in (("b.parquet", 7), ("a/c.parquet", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": [f"{name} {n}" for n in range(count)]}), tmp_path / name, row_group_size=5)
    (tmp_path / "notes.txt").write_text("no table")
    inputs = InputTables(tmp_path)
    blocks = list(inputs.blocks(3))
    assert inputs.files == ["a/c.parquet", "b.parquet"]
    assert [(b.file[0], b.group, b.first, b.rows) for b in blocks] == [
        ("a", 0, 0, 3), ("b", 0, 0, 3), ("b", 0, 3, 2), ("b", 1, 0, 2)
    ]  # fmt: skip
    read = [text for block in blocks for text in inputs.read(block)["text"].to_pylist()]
    assert read == [f"a/c.parquet {n}" for n in range(3)] + [f"b.parquet {n}" for n in range(7)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", b'{"id": 1, "text": "a\\nb"}\n{"id": 2, "text": "a\xff"}\n{"id": 3, "text": null}\n'),
        ("x.csv", b'id,text\n1,"a\nb"\n2,a\xff\n'),
    ],
)
def test_batch_invalid_utf8_fails_only_its_row(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    inputs = InputTables(tmp_path / name)
    (block,) = inputs.blocks(100)
    values = input_columns(inputs.read(block), TaskSpec("embed"))["text"]
    assert values[:2] == [b"a\nb", b"a\xff"] and values[2:] in ([], [None])


def test_input_table_long_line_is_read(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": "x" * 3_000_000}) + "\n" + json.dumps({"text": "y"}) + "\n")
    inputs = InputTables(tmp_path / "x.jsonl")
    assert [block.rows for block in inputs.blocks(10)] == [2]


@pytest.mark.parametrize(
    ("name", "content", "kind", "code", "expected"),
    [
        ("x.parquet", b"PAR1nothing", webpte.FormatError, "unreadable", ["x.parquet", " parquet:"]),
        ("x.jsonl", b'{"t": 1}\n{"t": "a"}\n', webpte.FormatError, "unreadable", ["x.jsonl", " json:", "Column(/t)"]),
        ("x.csv", b"", webpte.FormatError, "unreadable", ["x.csv", " csv:"]),
        ("x.txt", b"a", webpte.InputError, "not_a_table", ["x.txt", ".parquet"]),
    ],
)
def test_input_table_other_files_are_refused(tmp_path, name, content, kind, code, expected):
    (tmp_path / name).write_bytes(content)
    with raises(kind, *expected, code=code):
        list(InputTables(tmp_path / name).blocks(10))
    with raises(webpte.InputError, tmp_path / "y.parquet", code="missing_input"):
        InputTables(tmp_path / "y.parquet")


# ---------------------------------------------------------------- the folder


def block_of(*values):
    return RowBlock("x.parquet", 0, 0, len(values)), pa.table({"text": list(values)})


def test_block_name_depends_on_rows_and_job_only(tmp_path):
    block, table = block_of("a", None, "c")
    name = block_name(block, table, "job")
    pq.write_table(table, tmp_path / "again.parquet", compression="gzip", row_group_size=1)
    assert block_name(block, pq.read_table(tmp_path / "again.parquet"), "job") == name
    assert block_name(block, pa.concat_tables([table.slice(0, 1), table.slice(1)]), "job") == name
    assert block_name(block, table, "other") != name
    assert block_name(block, block_of("a", "", "c")[1], "job") != name


def test_block_file_is_complete_and_holds_counts(tmp_path):
    block, table = block_of("a", "b")
    result = BatchResult(
        {"generated": ["x", None], "prompt_tokens": [1, None]}, [None, "no"], tokens=5, computed_tokens=8
    )
    name = block_name(block, table, "job")
    write_block(tmp_path, name, with_result(table, result))
    assert read_block_counts(tmp_path, name) == {"rows": 2, "failed": 1, "tokens": 5, "computed_tokens": 8}
    first = (tmp_path / name).read_bytes()
    write_block(tmp_path, name, with_result(table, result))
    assert (tmp_path / name).read_bytes() == first and len(list(tmp_path.rglob("*.*"))) == 2
    (tmp_path / name).write_bytes(first[:-20])
    with raises(webpte.FormatError, tmp_path / name, code="damaged"):
        read_block_counts(tmp_path, name)


def test_block_is_intact_any_changed_byte_returns_false(tmp_path):
    """The rows hold what a checksum looks like, and so does the metadata of the input."""
    fake = "webpte_sha256\x18@" + "0" * 64
    table = pa.table({"text": ["a", fake]}).replace_schema_metadata({"webpte_sha256": "0" * 64, "note": fake})
    write_block(tmp_path, "x.parquet", table)
    content = (tmp_path / "x.parquet").read_bytes()
    assert block_is_intact(tmp_path, "x.parquet")
    assert pq.ParquetFile(tmp_path / "x.parquet").read()["text"].to_pylist() == ["a", fake]
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        (tmp_path / "x.parquet").write_bytes(damaged)
        assert not block_is_intact(tmp_path, "x.parquet"), at
    for length in (0, 5, len(content) // 2, len(content) - 1):
        (tmp_path / "x.parquet").write_bytes(content[:length])
        assert not block_is_intact(tmp_path, "x.parquet")
    assert not block_is_intact(tmp_path, "missing.parquet")


def test_block_is_intact_without_checksum_returns_false(tmp_path):
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "x.parquet")
    assert not block_is_intact(tmp_path, "x.parquet")


def test_with_result_failed_row_has_null_vector(tmp_path):
    """Whatever the vector of a failed row holds, NaN or numbers, the files hold null."""
    block, table = block_of("a", "b", "c")
    vectors = np.array([[1, 2], [np.nan, np.nan], [5, 6]], np.float32)
    result = BatchResult({"vector": vectors, "score": vectors[:, 0]}, [None, "too long", None])
    name = block_name(block, table, "job")
    write_block(tmp_path, name, with_result(table, result))
    rows = pq.ParquetFile(tmp_path / name).read()
    assert rows["vector"].to_pylist() == [[1, 2], None, [5, 6]]
    assert rows["score"].to_pylist() == [1, None, 5]
    assert rows["error"].to_pylist() == [None, "too long", None]


def test_job_folder_of_other_job_is_refused(tmp_path):
    check_job(tmp_path / "out", {"model": "a", "options": {"task": "embed"}})
    check_job(tmp_path / "out", {"model": "a", "options": {"task": "embed"}})
    with raises(webpte.InputError, tmp_path / "out", "model", code="other_job"):
        check_job(tmp_path / "out", {"model": "b", "options": {"task": "embed"}})
    with raises(webpte.InputError, 'task was "embed", now "generate"', code="other_job"):
        check_job(tmp_path / "out", {"model": "a", "options": {"task": "generate"}})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with raises(webpte.InputError, tmp_path / "mine", code="foreign_folder"):
        check_job(tmp_path / "mine", {"model": "a"})


def test_check_job_of_another_model_does_not_show_fingerprints(tmp_path):
    check_job(tmp_path / "out", {"model": "0d1d" * 16})
    with raises(webpte.InputError, tmp_path / "out", code="other_job") as raised:
        check_job(tmp_path / "out", {"model": "2e3e" * 16})
    assert "the model is another file" in str(raised.value)
    assert "0d1d" not in str(raised.value) and "2e3e" not in str(raised.value)


def test_changed_fields_names_each_field_with_both_values():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "long": {"enum": ["x" * 40, "y" * 40, "z" * 9]}},
    }
    before = {"options": {"output_column": "generated", "settings": {"max_new_tokens": 8, "json_schema": schema}}}
    after = json.loads(json.dumps(before).replace('"string"', '"number"').replace(": 8", ": 9"))
    after["options"]["column"] = "body"
    settings, schemas, column = changed_fields(before, after)
    assert (settings, column) == ("max_new_tokens was 8, now 9", 'column was not set, now "body"')
    assert '"string"' in schemas and '"number"' in schemas and len(schemas) < 180
    assert changed_fields({"options": {}}, {"options": {"settings": {"seed": 1}}}) == ["seed was not set, now 1"]
    assert changed_fields({"options": {"settings": {"seed": 1}}}, {"options": {}}) == ["seed was 1, now not set"]
    assert changed_fields(before, before) == []


def test_remove_stale_blocks_removes_own_leftovers_only(tmp_path):
    block, table = block_of("a")
    keep, old = block_name(block, table, "now"), block_name(block, table, "then")
    for name in (keep, old):
        write_block(tmp_path, name, table)
    (tmp_path / "x.parquet" / ".g00000-r000000000-abc.parquet.123.tmp").write_text("half")
    (tmp_path / "x.parquet" / ".g00000-r000000000-abc.parquet.rows").write_text("of rows that the input has no longer")
    (tmp_path / "x.parquet" / "notes.txt").write_text("somebody's")
    (tmp_path / "gone.parquet").mkdir()
    assert remove_stale_blocks(tmp_path, {keep}) == 1
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == sorted(["x.parquet", keep, "x.parquet/notes.txt"])


def test_check_columns_of_one_name_are_refused():
    schema = pa.schema([("text", pa.string()), ("text", pa.string()), ("id", pa.int64()), ("id", pa.int64())])
    inputs: Any = SimpleNamespace(files=["in.parquet"], schema=lambda file: schema)
    with raises(webpte.InputError, "in.parquet", "'text'", "got 2", code="ambiguous_column"):
        _check_columns(inputs, SimpleNamespace(input_columns=("text",), output_columns=("error",)))  # type: ignore[arg-type]
    single: Any = SimpleNamespace(files=["in.parquet"], schema=lambda file: schema.remove(0))
    _check_columns(single, SimpleNamespace(input_columns=("text",), output_columns=("error",)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "option"), [({"column": "txt"}, "--column"), ({"prompt_template": "{txt}?"}, "--prompt-template")]
)
def test_check_columns_of_unknown_name_names_the_option_to_correct(options, option):
    schema = pa.schema([("text", pa.string())])
    inputs: Any = SimpleNamespace(files=["in.parquet"], schema=lambda file: schema)
    with raises(webpte.InputError, "'txt'", "'text'?", code="unknown_column") as raised:
        _check_columns(inputs, TaskSpec("generate", **options))
    assert raised.value.hint == f"Its columns: text. Correct {option}."


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "[2 rows, 0 failed; 1 block; 1 row already done; 1 row in 2 s, 0.5 rows/s, device 0%]"),
        (2, "[4 rows, 0 failed; 2 blocks; 2 rows already done; 2 rows in 2 s, 1 rows/s, device 0%]"),
    ],
)
def test_summary_of_counts_has_singular_and_plural(count, text):
    report = BatchReport(2 * count, 0, count, count, 0, 0, 0, count, seconds=2.0, device_seconds=0.0)
    assert summary(report) == text


def test_summary_with_repaired_blocks_counts_them():
    report = BatchReport(6, 0, 3, 1, 0, 0, 0, 4, seconds=2.0, device_seconds=0.0, repaired_blocks=2)
    assert "; 2 rows already done; 2 damaged" in summary(report)


def test_progress_meter_after_a_resume_states_the_time_left_once(monkeypatch):
    """80 of 100 rows existed: the time left follows from the rate of the computed ones."""
    now = [100.0]
    events: list[Progress] = []
    monkeypatch.setattr("webpte.batch.job.time", SimpleNamespace(perf_counter=lambda: now[0]))
    meter = ProgressMeter(100, events.append)
    block = RowBlock("x.parquet", 0, 0, 10)
    meter.add(BlockStats(block, "name", computed=False, rows=80, failed=0, tokens=0, computed_tokens=0))
    now[0] += 20
    meter.add(BlockStats(block, "name", computed=True, rows=10, failed=0, tokens=0, computed_tokens=0))
    assert [event.seconds_left for event in events] == [None, 20.0]
    assert "left" not in events[-1].note and "0.5 rows/s" in events[-1].note
