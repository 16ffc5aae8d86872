"""`webpte batch` in one process: killed at any moment, it continues, and ends with the bytes of a run that was not."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

import webpte
from tests.support.harness.bulk import (
    contents,
    kept_rows,
    kill_when,
    read,
    start_batch,
    texts,
    vectors,
    wait_until,
    write_parquet,
)
from tests.support.harness.children import run_webpte
from tests.support.harness.errors import raises
from tests.support.harness.reports import check_report
from tests.support.models import example_models
from tests.support.models.task_checkpoints import exported
from webpte.batch import run
from webpte.batch.task_spec import TaskOptions
from webpte.cli import main
from webpte.progress import Progress

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
    with raises(webpte.InputError, undisturbed, "truncate was not set, now true", code="other_job"):
        run(model, table, undisturbed, block_rows=BLOCK, truncate=True)
    for file in model.parent.glob("model*"):
        shutil.copy(file, tmp_path / file.name)
    task = json.loads((tmp_path / "model.task.json").read_text())
    (tmp_path / "model.task.json").write_text(json.dumps(task | {"default_prompt": "query"}))
    with raises(webpte.InputError, undisturbed, "model", code="other_job"):
        run(tmp_path / "model.pte", table, undisturbed, block_rows=BLOCK)
    assert contents(undisturbed) == before


# ---------------------------------------------------------------- rows of a block that is not complete

ASKS = 14
GENERATE: Any = {"settings": {"max_new_tokens": 6}, "block_rows": 256}
GENERATE_OPTIONS = ("--block-rows", 256, "--max-new-tokens", 6)


@pytest.fixture(scope="module")
def talker():
    return example_models.talker() / "smollm2.pte"


@pytest.fixture(scope="module")
def asks(tmp_path_factory):
    values = [*texts(ASKS - 2, most=12), None, "x" * 3000]
    return write_parquet(tmp_path_factory.mktemp("asks") / "asks.parquet", values)


@pytest.fixture(scope="module")
def answered(talker, asks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("answered") / "out"
    report = run(talker, asks, folder, **GENERATE)
    assert (report.rows, report.failed, report.blocks, report.reused_rows) == (ASKS, 2, 1, 0)
    return folder


def test_batch_job_stopped_within_a_block_keeps_finished_rows(answered, talker, asks, tmp_path):
    cancel = webpte.CancelToken()

    def progress(event):
        if event.stage == "rows" and event.done >= 5:
            cancel.cancel()

    with raises(webpte.CancelledError, "'rows'"):
        run(talker, asks, tmp_path / "out", progress=progress, cancel=cancel, **GENERATE)
    kept = kept_rows(tmp_path / "out")
    assert 5 <= len(kept) < ASKS and not list((tmp_path / "out").rglob("g*.parquet"))
    seen: list[Progress] = []
    report = run(talker, asks, tmp_path / "out", progress=seen.append, **GENERATE)
    assert (report.reused_rows, report.computed_rows) == (len(kept), ASKS - len(kept))
    assert events_before(seen) == len(kept)
    assert contents(tmp_path / "out") == contents(answered)


def test_batch_job_killed_within_a_block_keeps_finished_rows(answered, talker, asks, tmp_path):
    out = tmp_path / "out"
    kill_when(start_batch(talker, asks, out, *GENERATE_OPTIONS), lambda: len(kept_rows(out)) >= 4)
    kept = kept_rows(out)
    assert 4 <= len(kept) < ASKS
    report = run(talker, asks, out, **GENERATE)
    assert report.reused_rows == len(kept) and contents(out) == contents(answered)


def test_batch_command_interrupted_states_the_rows_that_are_kept(answered, talker, asks, tmp_path):
    out = tmp_path / "out"
    child = start_batch(talker, asks, out, *GENERATE_OPTIONS)
    wait_until(child, lambda: len(kept_rows(out)) >= 4)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    kept = kept_rows(out)
    assert child.returncode == 130
    assert f"[stopped: {len(kept)} of {ASKS} rows are kept in {out}." in errors.decode()
    assert run(talker, asks, out, **GENERATE).reused_rows == len(kept) and contents(out) == contents(answered)


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_batch_job_stopped_between_calls_has_equal_results(kind, tmp_path):
    """The calls that are left have the rows that they would have had, so that numbers are bitwise equal."""
    model, options = exported(kind) / "model.pte", TaskOptions()
    if kind == "bert":
        source = write_parquet(tmp_path / "in.parquet", [*texts(60, most=16), None, "cat " * 40])
    else:
        source = write_parquet(tmp_path / "in.parquet", [*map(encoded_image, range(30)), b"no image"])
        options["column"] = "text"
    run(model, source, tmp_path / "alone", block_rows=64, **options)
    calls = 0
    while not (tmp_path / "out" / "_manifest.json").exists():
        cancel, calls = webpte.CancelToken(), calls + 1
        events: list[Progress] = []

        def progress(event, cancel=cancel, events=events):
            events.append(event)
            if event.stage == "rows" and event.done > events_before(events):
                cancel.cancel()

        with contextlib.suppress(webpte.CancelledError):
            run(model, source, tmp_path / "out", block_rows=64, progress=progress, cancel=cancel, **options)
    assert calls >= 3 and contents(tmp_path / "out") == contents(tmp_path / "alone")


def events_before(events):
    """Return the rows that were kept when the run began."""
    return next(event.done for event in events if event.stage == "rows")


def encoded_image(number):
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


# ---------------------------------------------------------------- one file


def test_batch_job_with_file_name_writes_one_file(undisturbed, model, table, tmp_path):
    out = tmp_path / "vectors.parquet"
    report = run(model, table, out, block_rows=BLOCK)
    assert (report.rows, report.failed, report.blocks) == (ROWS, 2, 9)
    assert out.is_file() and list(tmp_path.iterdir()) == [out]
    assert pq.read_table(out).equals(read(undisturbed))
    before = out.read_bytes()
    again = run(model, table, out, block_rows=BLOCK)
    assert (again.rows, again.failed, again.reused_rows, again.computed_rows) == (ROWS, 2, ROWS, 0)
    assert out.read_bytes() == before
    with raises(webpte.InputError, out, "truncate was not set, now true", code="other_job"):
        run(model, table, out, block_rows=BLOCK, truncate=True)
    shorter = write_parquet(tmp_path / "in" / table.name, pq.read_table(table)["text"].to_pylist()[:300])
    with raises(webpte.InputError, out, code="other_rows"):
        run(model, shorter, out, block_rows=BLOCK)
    pq.write_table(pq.read_table(table), out)
    with raises(webpte.FormatError, out, code="foreign_file"):
        run(model, table, out, block_rows=BLOCK)


def test_batch_job_of_one_file_stopped_continues(model, table, tmp_path):
    cancel, out = webpte.CancelToken(), tmp_path / "vectors.parquet"

    def progress(event):
        if event.stage == "rows" and event.done >= 120:
            cancel.cancel()

    with raises(webpte.CancelledError, "'rows'"):
        run(model, table, out, block_rows=BLOCK, progress=progress, cancel=cancel)
    assert not out.exists() and (tmp_path / "vectors.parquet.blocks" / "_job.json").exists()
    assert run(model, table, out, block_rows=BLOCK).reused_rows >= 120
    run(model, table, tmp_path / "fresh.parquet", block_rows=BLOCK)
    assert out.read_bytes() == (tmp_path / "fresh.parquet").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh.parquet", "vectors.parquet"]


def test_batch_job_with_file_name_needs_equal_columns(model, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,text\n1,a cat\n")
    (tmp_path / "in" / "b.csv").write_text("id,text\nx,a mat\n")
    with raises(webpte.InputError, "a.csv", "b.csv", code="different_columns"):
        run(model, tmp_path / "in", tmp_path / "out.parquet")
    with raises(webpte.InputError, "out.csv", "out.parquet", code="unsupported_output"):
        run(model, tmp_path / "in", tmp_path / "out.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    (tmp_path / "in" / "b.csv").write_text("id,text\n2,a mat\n")
    (tmp_path / "old.parquet").mkdir()  # a folder of that name stays one
    run(model, tmp_path / "in", tmp_path / "old.parquet")
    assert (tmp_path / "old.parquet" / "_manifest.json").exists()


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
    assert again.returncode == 0 and "1 block; 4 rows already done" in again.stderr
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
