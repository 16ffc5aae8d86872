"""Rows of images through a tiny classifier: in memory, and from table to table."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import webpte
from tests.support.harness.bulk import contents, read
from tests.support.harness.errors import raises
from tests.support.models.task_checkpoints import exported
from webpte.batch import Predictor, run
from webpte.vision import Classifier

COUNT = 19  # two calls of 8 and a rest


@pytest.fixture(scope="module")
def model():
    return exported("vit") / "model.pte"


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    sizes = random.integers(5, 60, (COUNT, 2))
    return [random.integers(0, 256, (*size, 3)).astype(np.uint8) for size in sizes]


@pytest.fixture(scope="module")
def expected(model, images):
    with Classifier.load(model) as classifier:
        return [actual[0] for actual in classifier(images, top=1)]


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def as_stored(pixels):
    return {"bytes": encoded(pixels), "path": None}


@pytest.mark.parametrize("form", [encoded, as_stored, np.asarray, Image.fromarray, lambda p: memoryview(encoded(p))])
def test_predictor_rows_get_most_probable_class(model, images, expected, form):
    assert len({actual.label for actual in expected}) > 1
    with Predictor(model, column="image") as predictor:
        actual = predictor({"id": range(COUNT), "image": [form(pixels) for pixels in images]})
    assert list(actual) == ["id", "image", "label", "score", "error"] and actual["error"] == [None] * COUNT
    assert actual["label"] == [one.label for one in expected]
    np.testing.assert_allclose(actual["score"], [one.score for one in expected], atol=1e-6)


def test_predictor_non_image_rows_report_error_alone(model, images, expected):
    rows = [encoded(images[0]), None, b"none", "cat.png", {"bytes": None, "path": "x"}, 3, np.zeros((4, 4)), images[1]]
    with Predictor(model, column="image") as predictor:
        actual = predictor({"image": rows})
        assert predictor({"image": []})["label"] == []
    reports = [
        "null",
        "4 bytes",
        "'cat.png'",
        "null",
        "got 3",
        "float64",
    ]
    assert actual["error"][0] is None and actual["error"][7] is None
    for error, words in zip(actual["error"][1:7], reports, strict=True):
        assert error.startswith("InputError: value: ") and words in error
    assert actual["label"] == [expected[0].label, *[None] * 6, expected[1].label]
    assert np.isnan(actual["score"][1:7]).all()


def test_batch_job_images_from_table_to_table(model, images, expected, tmp_path):
    files = [encoded(pixels) for pixels in images]
    files[4] = None
    table = pa.table({"id": range(COUNT), "image": pa.array(files, pa.binary())})
    pq.write_table(table, tmp_path / "in.parquet")
    report = run(model, tmp_path / "in.parquet", tmp_path / "out", column="image", block_rows=7)
    assert (report.rows, report.failed, report.blocks, report.padding) == (COUNT, 1, 3, 0)
    actual = read(tmp_path / "out")
    assert actual["id"].to_pylist() == list(range(COUNT)) and actual["score"].type == pa.float32()
    assert actual["label"].to_pylist() == [None if n == 4 else one.label for n, one in enumerate(expected)]
    assert [score is None for score in actual["score"].to_pylist()] == [n == 4 for n in range(COUNT)]
    run(model, tmp_path / "in.parquet", tmp_path / "again", column="image", block_rows=7)
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_classify_path_column_reports_error_per_row(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "cat.png"}\n')
    assert run(model, tmp_path / "in.jsonl", tmp_path / "out").failed == 1
    assert "got 'cat.png'" in read(tmp_path / "out")["error"][0].as_py()


def test_options_of_other_tasks_are_refused(model):
    with raises(webpte.InputError, "truncate", "'embed'", "'classify'"):
        Predictor(model, truncate=True)
