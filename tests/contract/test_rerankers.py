"""Cross-encoders: scores of exported programs against those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import webpte
from tests.support.harness.errors import raises
from tests.support.models.rerankers import MAX_PAIR_TOKENS, exported_reranker, reranker, write_reranker
from tests.support.models.task_checkpoints import save
from webpte import InputError, UnsupportedError
from webpte.bundles.program_kinds import find_encoder
from webpte.embed import Embedder, PairTokenizer, Reranker
from webpte.export import export_checkpoint

pytestmark = pytest.mark.timeout(3600)  # with a cold cache a test exports what it loads
QUERY = "the cat sat"
DOCUMENTS = [
    "dogs run",
    "The cat sat on a mat.",
    "",
    "a cat saw that dogs run far away from home, and the mat sat on the cat, and dogs run on a mat",
    *["a mat"] * 3,
]


def of_transformers(folder: Path, query: str, documents: list[str]) -> np.ndarray:
    """Return the scores of pairs, each computed alone."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    scores = []
    for document in documents:
        # in lists: alone, an empty document would not count as the second text
        pair = tokenizer([query], [document], truncation=True, max_length=MAX_PAIR_TOKENS, return_tensors="pt")
        known = {name: pair[name] for name in ("input_ids", "attention_mask")}
        segments: dict[str, Any] = {}
        if model.config.type_vocab_size > 1:
            begin = int((pair["input_ids"][0] == 3).nonzero()[0]) + 1
            segments["token_type_ids"] = (torch.arange(pair["input_ids"].shape[1]) >= begin).long().unsqueeze(0)
        with torch.no_grad():
            scores.append(torch.sigmoid(model(**known, **segments).logits)[0, 0].item())
    return np.array(scores, np.float32)


@pytest.mark.parametrize("name", ["bert", pytest.param("xlm-roberta", marks=pytest.mark.slow)])
def test_scores_are_those_of_transformers(name):
    folder = exported_reranker(name)
    with Reranker.load(folder / "model.pte") as model:
        scores = model(QUERY, DOCUMENTS)
        alone = np.concatenate([model(QUERY, [document]) for document in DOCUMENTS[:3]])
        assert model.max_tokens == MAX_PAIR_TOKENS and scores.dtype == np.float32
        assert model(QUERY, []).shape == (0,)
        with raises(InputError, "two strings", code="wrong_type"):
            model(3, ["a mat"])  # type: ignore[arg-type]
    expected = of_transformers(folder / "checkpoint", QUERY, DOCUMENTS)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(scores[:3], alone, atol=1e-6)
    assert np.ptp(expected[:3]) > 1e-4  # the documents differ


def test_pairs_are_cut_to_the_limit_and_begin_the_second_text_after_the_separator():
    tokenizer = PairTokenizer.load(exported_reranker("bert") / "model.pte")
    short, long = tokenizer.encode([("the cat", "dogs run"), ("the cat", "a mat " * 40)])
    assert short.index(tokenizer.separator) == 3 and len(short) == 7 and len(long) == MAX_PAIR_TOKENS


def test_bundle_of_a_reranker_is_no_search_page():
    with webpte.load(exported_reranker("bert") / "model.pte") as program:
        assert find_encoder(program) is None


def test_program_of_another_task_is_refused():
    with raises(InputError, "reranking", "embedding", code="wrong_task"):
        Embedder.load(exported_reranker("bert") / "model.pte")


def test_classifier_with_two_labels_is_refused(tmp_path):
    write_reranker(tmp_path / "checkpoint", "bert")
    config = reranker("bert").config
    config.num_labels = 2
    save(tmp_path / "checkpoint", hf.BertForSequenceClassification(config))
    with raises(UnsupportedError, "one", "2", code="labels"):
        export_checkpoint(tmp_path / "checkpoint", tmp_path / "model.pte")
