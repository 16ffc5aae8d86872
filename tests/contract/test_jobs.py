"""`webpte batch` in one process: killed at any moment, it continues, and ends with the bytes of a run that was not."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import webpte
from tests.support.harness.bulk import contents, kill_when, read, start_batch, texts, vectors, write_parquet
from tests.support.harness.children import run_webpte
from tests.support.harness.errors import raises
from tests.support.harness.reports import check_report
from tests.support.models import example_models
from tests.support.models.task_checkpoints import exported
from webpte.batch import run
from webpte.cli import main

ROWS, BLOCK = 400, 50


@pytest.fixture(scope="module")
def model():
    return exported("bert") / "model.pte"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    values = [*texts(ROWS - 3, most=18), None, "cat " * 40, "the end"]
    return write_parquet(tmp_path_factory.mktemp("in") / "texts.parquet", values, row_group=180)


@pytest.fixture(scope="module")
def undisturbed(model, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "out"
    report = run(model, table, folder, block_rows=BLOCK)
    assert (report.rows, report.failed, report.blocks, report.reused_blocks, report.removed_blocks) == (
        ROWS,
        2,
        9,
        0,
        0,
    )
    assert report.computed_rows == ROWS and 0 < report.device_share <= 1 and report.tokens < report.computed_tokens
    return folder


def test_batch_job_writes_each_row_once_in_order(undisturbed, model, table):
    actual, values = read(undisturbed), pq.read_table(table)
    assert actual["id"].to_pylist() == list(range(ROWS)) and actual["text"].to_pylist() == values["text"].to_pylist()
    errors = actual["error"].to_pylist()
    assert errors[:-3] == [None] * (ROWS - 3) and "null" in errors[-3] and "42 tokens" in errors[-2]
    assert actual["embedding"].to_pylist()[-3:-1] == [None, None]
    with webpte.embed.Embedder.load(model) as embedder:
        want = embedder(values["text"].to_pylist()[: ROWS - 3])
    np.testing.assert_allclose(np.stack(actual["embedding"].to_pylist()[: ROWS - 3]), want, atol=1e-5)


def test_batch_job_manifest_lists_blocks_without_times(undisturbed, table):
    manifest = json.loads((undisturbed / "_manifest.json").read_text())
    assert (manifest["rows"], manifest["failed"], manifest["input"]) == (ROWS, 2, "texts.parquet")
    assert sum(block["rows"] for block in manifest["blocks"]) == ROWS
    assert sorted(block["output"] for block in manifest["blocks"]) == sorted(
        name for name in contents(undisturbed) if name.endswith(".parquet")
    )
    assert str(table.parent) not in (undisturbed / "_manifest.json").read_text()


def test_batch_job_second_run_computes_nothing(undisturbed, model, table, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "out")
    report = run(model, table, tmp_path / "out", block_rows=BLOCK)
    assert (report.reused_blocks, report.computed_rows) == (9, 0) and contents(tmp_path / "out") == contents(
        undisturbed
    )


def test_batch_job_cancelled_continues(undisturbed, model, table, tmp_path):
    cancel, seen = webpte.CancelToken(), []

    def progress(event):
        seen.append(event)
        if event.stage == "rows" and event.done >= 120:
            cancel.cancel()

    with raises(webpte.CancelledError, "'rows'"):
        run(model, table, tmp_path / "out", block_rows=BLOCK, progress=progress, cancel=cancel)
    assert "rows/s" in seen[-1].note and "device" in seen[-1].note and seen[-1].seconds_left > 0
    there = len(list((tmp_path / "out").rglob("g*.parquet")))
    assert 2 <= there < 9 and not (tmp_path / "out" / "_manifest.json").exists()
    assert run(model, table, tmp_path / "out", block_rows=BLOCK).reused_blocks == there
    assert contents(tmp_path / "out") == contents(undisturbed)


def test_batch_job_killed_continues(undisturbed, model, table, tmp_path):
    """The process is killed after its first block, and after a later one."""
    out, results = tmp_path / "out", []
    for blocks in (1, 4):
        child = start_batch(model, table, out, "--block-rows", BLOCK)
        kill_when(child, lambda: len(list(out.rglob("g*.parquet"))) >= blocks)  # noqa: B023 - used at once
        results.append(len(list(out.rglob("g*.parquet"))))
    assert results[0] < 9
    report = run(model, table, out, block_rows=BLOCK)
    assert report.reused_blocks == results[1] and contents(out) == contents(undisturbed)


def test_changed_rows_alone_are_computed_again(undisturbed, model, table, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "out")
    values = pq.read_table(table)["text"].to_pylist()
    values[60] = "dogs saw the mat"
    changed = write_parquet(tmp_path / "texts.parquet", values, row_group=180)
    report = run(model, changed, tmp_path / "out", block_rows=BLOCK)
    assert (report.reused_blocks, report.computed_rows, report.removed_blocks) == (8, BLOCK, 1)
    run(model, changed, tmp_path / "fresh", block_rows=BLOCK)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh") != contents(undisturbed)
    shorter = write_parquet(tmp_path / "texts.parquet", values[:200], row_group=180)
    assert run(model, shorter, tmp_path / "out", block_rows=BLOCK).removed_blocks == 5
    assert read(tmp_path / "out")["id"].to_pylist() == list(range(200))


def test_batch_job_other_task_leaves_folder_unchanged(undisturbed, model, table, tmp_path):
    before = contents(undisturbed)
    with raises(webpte.InputError, undisturbed, "block_rows", 50, 60, code="other_job"):
        run(model, table, undisturbed, block_rows=60)
    with raises(webpte.InputError, undisturbed, "options", "truncate", code="other_job"):
        run(model, table, undisturbed, block_rows=BLOCK, truncate=True)
    for file in model.parent.glob("model*"):
        shutil.copy(file, tmp_path / file.name)
    task = json.loads((tmp_path / "model.task.json").read_text())
    (tmp_path / "model.task.json").write_text(json.dumps(task | {"default_prompt": "query"}))
    with raises(webpte.InputError, undisturbed, "model", code="other_job"):
        run(tmp_path / "model.pte", table, undisturbed, block_rows=BLOCK)
    assert contents(undisturbed) == before


def flip_middle(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_run_damaged_blocks_are_computed_again_and_reported(undisturbed, model, table, tmp_path):
    """One is cut, one has a flipped bit in its data, and one was written without a checksum, as by webpte 0.2.0."""
    shutil.copytree(undisturbed, tmp_path / "out")
    cut, flipped, old = sorted((tmp_path / "out").rglob("g*.parquet"))[:3]
    cut.write_bytes(cut.read_bytes()[:-9])
    flip_middle(flipped)
    read_counts = pq.read_schema(flipped).metadata  # the footer is intact
    assert b"webpte" in read_counts
    pq.write_table(pq.ParquetFile(old).read(), old)
    report = run(model, table, tmp_path / "out", block_rows=BLOCK)
    assert (report.repaired_blocks, report.reused_blocks, report.computed_rows) == (3, 6, 3 * BLOCK)
    assert contents(tmp_path / "out") == contents(undisturbed)
    again = run(model, table, tmp_path / "out", block_rows=BLOCK)
    assert (again.repaired_blocks, again.reused_blocks) == (0, 9)


def test_batch_job_folder_of_mixed_formats(model, tmp_path):
    rows = pa.table({"id": list(range(30)), "text": texts(30, most=15)})
    (tmp_path / "in").mkdir()
    pyarrow.csv.write_csv(rows.slice(0, 10), tmp_path / "in" / "a.csv")
    (tmp_path / "in" / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows.slice(10, 10).to_pylist()))
    pq.write_table(rows.slice(20, 10), tmp_path / "in" / "c.parquet")
    run(model, tmp_path / "in", tmp_path / "out", block_rows=8)
    result = read(tmp_path / "out")
    assert result["id"].to_pylist() == list(range(30)) and np.isfinite(vectors(result)).all()
    (tmp_path / "in" / "b.jsonl").unlink()
    assert run(model, tmp_path / "in", tmp_path / "out", block_rows=8).removed_blocks == 2
    assert len(read(tmp_path / "out")) == 20


@pytest.mark.parametrize(
    ("options", "code", "values"),
    [
        ({"column": "txt"}, "unknown_column", ["texts.parquet", "'txt'", "'text'?", "id, text"]),
        ({"output_column": "id"}, "column_exists", ["texts.parquet", "'id'"]),
        ({"block_rows": 0}, None, ["block_rows", 1, 0]),
    ],
)
def test_invalid_jobs_are_refused_before_writing_files(model, table, tmp_path, options, code, values):
    with raises(webpte.InputError, *values, code=code):
        run(model, table, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- the command


def test_batch_command_generates_for_rows(tmp_path):
    talker = example_models.talker() / "smollm2.pte"
    table = write_parquet(tmp_path / "asks.parquet", ["a cat", None, "x" * 3000, "dogs"])
    (tmp_path / "schema.json").write_text('{"enum": ["yes", "no"]}')
    arguments = ("--prompt-template", "{id}. {text}?", "--json-schema", tmp_path / "schema.json", "--column", "text")
    done = run_webpte("batch", talker, table, tmp_path / "out", *arguments)
    assert done.returncode == 0, done.stderr
    assert "[4 rows, 2 failed; 1 block; 4 rows in " in done.stderr and "rows/s, device" in done.stderr
    result = read(tmp_path / "out").to_pylist()
    assert result[0]["generated"] in ('"yes"', '"no"') and result[0]["finish_reason"] == "stop"
    assert "null" in result[1]["error"] and "ContextFullError" in result[2]["error"] and result[3]["error"] is None
    assert result[2]["generated"] is None and result[2]["prompt_tokens"] is None
    again = run_webpte("batch", talker, table, tmp_path / "out", *arguments)
    assert again.returncode == 0 and "1 block; 1 already done" in again.stderr
    report = json.loads(run_webpte("batch", talker, table, tmp_path / "out", *arguments, "--json").stdout)
    check_report("batch", report)
    assert (report["rows"], report["failed"], report["reused_blocks"], report["computed_rows"]) == (4, 2, 1, 0)


def test_batch_command_refuses_before_loading(model, table, tmp_path, capsys):
    for value, reports in (
        ((model, tmp_path / "no.parquet", tmp_path / "out"), "no.parquet does not exist"),
        ((model, table, tmp_path / "a" / "b"), "there is no folder"),
        ((model, table, tmp_path / "out", "--temperature", "1"), "allowed only for the task 'generate'"),
    ):
        assert main(["batch", *map(str, value)]) == 1
        assert reports in capsys.readouterr().err and not (tmp_path / "out").exists()
