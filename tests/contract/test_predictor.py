"""`Predictor`: rows of columns through tiny models, with rows that fail among them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.bulk import texts
from tests.support.harness.errors import raises
from tests.support.models import example_models
from tests.support.models.task_checkpoints import exported
from webpte.batch import Predictor
from webpte.embed import Embedder
from webpte.llm import LLM
from webpte.llm.tokenizer import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["kind", "legs"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def encoder():
    with Predictor(exported("bert") / "model.pte") as predictor:
        yield predictor


@pytest.fixture(scope="module")
def talker():
    path = example_models.talker() / "smollm2.pte"
    with Predictor(path, settings={"max_new_tokens": 12}, prompt_template="{name}: {text}") as predictor:
        yield predictor


def test_rows_are_embedded_in_their_order(encoder):
    rows = texts(300)
    actual = encoder({"id": list(range(300)), "text": rows})
    assert list(actual) == ["id", "text", "embedding", "error"] and actual["id"] == list(range(300))
    good = [number for number, error in enumerate(actual["error"]) if error is None]
    assert 200 < len(good) < 300  # some are longer than 20 tokens
    with Embedder.load(exported("bert") / "model.pte") as embedder:
        want = embedder([rows[number] for number in good])
    np.testing.assert_allclose(np.stack([actual["embedding"][number] for number in good]), want, atol=1e-5)


def test_failed_rows_have_errors_and_other_rows_have_results(encoder):
    rows = ["the cat", None, b"a\xff", "cat " * 40, [2, 6, 3], [2, 9999, 3], 3, "the cat"]
    result = encoder({"text": rows})
    messages = result["error"]
    assert [error is None for error in messages] == [True, False, False, False, True, False, False, True]
    for number, words in ((1, "null"), (2, "UTF-8"), (3, "at most 20 tokens, got 42 tokens"), (5, "9999")):
        assert messages[number].startswith("InputError: ") and words in messages[number]
    vectors = np.stack(result["embedding"])
    assert np.isnan(vectors[[1, 2, 3, 5, 6]]).all() and np.isfinite(vectors[[0, 4, 7]]).all()
    np.testing.assert_array_equal(vectors[0], vectors[7])
    np.testing.assert_array_equal(
        encoder({"text": ["the cat"]})["embedding"][0], encoder({"text": rows[:1]})["embedding"][0]
    )


def test_long_texts_are_cut_if_asked_for():
    with Predictor(exported("bert") / "model.pte", truncate=True, prompt="query") as predictor:
        result = predictor({"text": ["cat " * 40, "query: dogs run"]})
        assert result["error"] == [None, None]
        with raises(webpte.InputError, "prompt", "'query'", "'title'"):
            Predictor(exported("bert") / "model.pte", prompt="title")


def test_arrays_give_arrays(encoder):
    result = encoder({"text": np.array(["a", None, "the cat"], object)})
    assert result["embedding"].shape == (3, 48) and result["embedding"].dtype == np.float32
    assert result["error"].dtype == object and result["error"][1].startswith("InputError: value: ")
    empty = encoder({"text": np.array([], object)})
    assert empty["embedding"].shape == (0, 48) and empty["error"].shape == (0,)


@pytest.mark.parametrize(
    ("batch", "code", "values"),
    [
        ([1], None, ["batch", "[1]"]),
        ({"texts": ["a"]}, "unknown_column", ["batch", "'text'", "'texts'?"]),
        ({"text": ["a"], "error": [1]}, "column_exists", ["batch", "'error'"]),
    ],
)
def test_wrong_batches_are_refused(encoder, batch, code, values):
    with raises(webpte.InputError, *values, code=code):
        encoder(batch)


def test_padding_is_counted(encoder):
    result = encoder.predict({"text": ["the cat", "a mat sat on the cat"]})
    assert result.tokens == 4 + 8 and result.computed_tokens >= result.tokens and result.seconds > 0


# ---------------------------------------------------------------- answers


def test_rows_are_answered_as_each_alone(talker):
    names, rows = ["a", "b", "c"] * 4, texts(12, mean=1.0)
    result = talker({"name": names, "text": rows})
    assert result["error"] == [None] * 12 and set(result["finish_reason"]) <= {"stop", "length"}
    with LLM.load(talker.path) as llm:
        for number in (0, 7):
            ask = [{"role": "user", "content": f"{names[number]}: {rows[number]}"}]
            alone = llm.generate(ask, max_new_tokens=12)
            assert alone.result() == result["generated"][number]
            assert alone.usage.completion_tokens == result["completion_tokens"][number]
            assert alone.usage.prompt_tokens == result["prompt_tokens"][number]


def test_prompts_that_fail_have_an_error(talker):
    result = talker({"name": ["a", None, "b"], "text": ["x" * 2000, "y", "z"]})
    assert "ContextFullError" in result["error"][0] and "null" in result["error"][1] and result["error"][2] is None
    assert result["generated"][0] is None and result["finish_reason"][1] is None and result["generated"][2]


def test_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(talker, monkeypatch):
    """Tokenizing a row of 3 MB took a minute."""
    tokenized: list[str] = []
    encoding = Tokenizer._encoding

    def recorded(self: Tokenizer, text: str, specials: bool) -> Any:
        tokenized.append(text)
        return encoding(self, text, specials)

    monkeypatch.setattr(Tokenizer, "_encoding", recorded)
    result = talker({"name": ["a", "b"], "text": ["x" * 3_000_000, "hi"]})
    assert result["error"][0].startswith("ContextFullError: ") and "3,000,003" in result["error"][0]
    assert result["error"][1] is None and max(map(len, tokenized)) < 1000


def test_answers_follow_a_schema():
    path = example_models.talker() / "smollm2.pte"
    settings = {"json_schema": SCHEMA, "max_new_tokens": 60, "temperature": 1.0}
    with Predictor(path, raw=True, settings=settings) as predictor:
        result = predictor({"text": texts(20, mean=1.0)})
    answers = [
        json.loads(text)
        for text, why in zip(result["generated"], result["finish_reason"], strict=True)
        if why == "stop"
    ]
    assert len(answers) == 20 and all(
        answer["kind"] in ("cat", "dog") and 0 <= answer["legs"] <= 9 for answer in answers
    )


def test_predictor_system_message_requires_template(tmp_path):
    for file in example_models.talker().iterdir():
        if "chat_template" not in file.name and file.is_file():
            (tmp_path / file.name).symlink_to(file)
    with raises(webpte.InputError, "system", "smollm2.pte", code="no_chat_template"):
        Predictor(tmp_path / "smollm2.pte", system="Be brief.")
