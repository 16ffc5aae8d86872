"""`webpte eval` against torch's own arithmetic on the modules that were exported."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.export.exporting import export
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_rows_but
from tests.support.harness.reports import reported
from tests.support.models.llama import llama
from tests.support.models.tiny_llm import CONTEXT, write_tokenizer
from webpte import CancelledError, CancelToken, InputError
from webpte.llm import LLM, LogitsError
from webpte.measure.evaluation import TextTokens, rolling_windows, sliding_windows
from webpte.measure.evaluation.programs import evaluate, text_tokens
from webpte.suppress_output import suppress_logs

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "float": ("llama", {}),
    "4w": ("llama_4w_emb4", {"quantize": "4w", "embedding": "4,32"}),
}
TEXT = "The quick brown fox jumps over the lazy dog; 0123456789 times. " * 3  # three windows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    write_tokenizer(folder / "tokenizer.json")
    for name, (exported, _) in PROGRAMS.items():
        shutil.copy(export(exported).path, folder / f"{name}.pte")
    return folder


@pytest.fixture(scope="module")
def models(folder):
    with LLM.load(folder / "float.pte") as reference, LLM.load(folder / "4w.pte") as model:
        yield reference, model


def module(name):
    """The very module that was exported."""
    with suppress_logs(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return llama(**PROGRAMS[name][1]).methods["forward"].module


def by_torch(text, start, stride):
    """Losses of both modules and the divergence at every token that is predicted, a whole window at a time."""
    known = TextTokens([ord(c) for c in text], (), start)
    windows = rolling_windows(known, CONTEXT) if stride is None else sliding_windows(known, CONTEXT, stride)
    losses: dict[str, list[torch.Tensor]] = {"float": [], "4w": []}
    divergence = []
    both = {name: module(name) for name in losses}
    for window in windows:
        rows = {}
        for name, each in both.items():
            rows[name] = torch.log_softmax(torch.cat(list(eager(each, window))).double(), -1)
            expected = torch.tensor(window.tokens[window.first :])
            losses[name].append(torch.nn.functional.nll_loss(rows[name], expected, reduction="none"))
        terms = torch.nn.functional.kl_div(rows["4w"], rows["float"], reduction="none", log_target=True)
        divergence.append(terms.sum(-1))
    means = {name: torch.cat(actual).mean().exp().item() for name, actual in losses.items()}
    return means["float"], means["4w"], torch.cat(divergence).mean().item()


def eager(each, window):
    """Yield one token at a time, from an empty cache."""
    for name, buffer in each.named_buffers():
        if "cache" in name:
            buffer.zero_()
    with torch.no_grad():
        for at, token in enumerate(window.tokens[:-1]):
            logits = each(torch.tensor([[token]]), {"input_pos": torch.tensor([at])})
            if at >= window.first - 1:
                yield logits  # (1, V)


@pytest.mark.parametrize(("stride", "windows"), slow_rows_but([(48, 4)], [(None, 3), (48, 4)]))
def test_perplexity_and_divergence_equal_torch(models, stride, windows):
    reference, model = models
    result = evaluate(model, TEXT, against=reference, stride=stride)
    start = text_tokens(model.tokenizer, model.text_model.special_tokens, TEXT).start
    assert start is not None
    expected = by_torch(TEXT, start, stride)
    assert (result.tokens, result.windows) == (len(TEXT) - (stride is not None), windows)
    assert result.context == (CONTEXT if stride is None else CONTEXT - 1)
    assert result.against is not None and expected[2] > 1e-4
    measured = result.against.reference_perplexity.value, result.against.perplexity.value, result.against.kl.value
    assert measured == pytest.approx(expected, rel=1e-4)
    assert result.perplexity == result.against.perplexity
    assert evaluate(model, TEXT, stride=stride).perplexity == pytest.approx(result.perplexity)


def test_evaluate_text_within_context_and_prefix(models):
    reference, _ = models
    whole = evaluate(reference, TEXT[:20])
    assert (whole.tokens, whole.windows, whole.context) == (20, 1, 20)
    assert evaluate(reference, TEXT, tokens=20) == whole


def test_evaluate_refused_call_leaves_model_unchanged(models):
    _, model = models
    before = evaluate(model, TEXT[:9])
    with raises(InputError, code="empty_text"):
        evaluate(model, "")
    with raises(InputError, "tokens", 1, 2147483647, 0):
        evaluate(model, TEXT, tokens=0)
    with raises(InputError, "text", "str", b"text"):
        evaluate(model, b"text")  # type: ignore[arg-type]
    with raises(InputError, "against", "webpte.llm.LLM", "'float.pte'"):
        evaluate(model, TEXT, against="float.pte")  # type: ignore[arg-type]
    cancel = CancelToken()
    cancel.cancel()
    with raises(CancelledError, "'evaluate'", " 0 of "):
        evaluate(model, TEXT, cancel=cancel)
    assert evaluate(model, TEXT[:9]) == before


def test_evaluate_other_tokenizer_is_refused(models, folder, tmp_path):
    reference, _ = models
    words = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = words["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (tmp_path / "other.json").write_text(json.dumps(words))
    with (
        LLM.load(folder / "4w.pte", tmp_path / "other.json") as other,
        raises(InputError, "float.pte", "4w.pte", "token 97", "'a'", "'b'"),
    ):
        evaluate(other, TEXT, against=reference)
    del words["pre_tokenizer"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (tmp_path / "other.json").write_text(json.dumps(words))
    with (
        LLM.load(folder / "4w.pte", tmp_path / "other.json") as other,
        raises(InputError, "float.pte", "4w.pte", 189, "1 tokens"),
    ):
        evaluate(other, TEXT, against=reference)


def test_logits_that_are_nan_are_an_error(models, monkeypatch):
    reference, _ = models
    logits = reference.engine.runner.logits

    def broken(rows, count=1):
        result = logits(rows, count)
        result[-1, 3] = np.nan
        return result

    with monkeypatch.context() as patched:
        patched.setattr(reference.engine.runner, "logits", broken)
        with raises(LogitsError, "row 19", "1 of 128", "NaN"):
            evaluate(reference, TEXT[:20])
    assert np.isfinite(evaluate(reference, TEXT[:20]).perplexity.value)


def test_eval_command_equals_api(models, folder, capsys, monkeypatch, tmp_path):
    reference, model = models
    (tmp_path / "text.txt").write_text(TEXT)
    result = evaluate(model, TEXT, against=reference)
    monkeypatch.chdir(folder)
    arguments = ("eval", "4w.pte", "--against", "float.pte", "--text", tmp_path / "text.txt")
    report = reported(capsys, *arguments)
    assert result.against is not None
    assert report["against"]["kl"] == pytest.approx(result.against.kl._asdict())
    assert report["perplexity"] == pytest.approx(result.perplexity._asdict())


def test_eval_command_measures_cost_of_int8_cache(folder, capsys, monkeypatch, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(folder)
    same = ("eval", "4w.pte", "--against", "4w.pte", "--text", tmp_path / "text.txt", "--tokens", 40)
    costs = [reported(capsys, *same, "--kv-cache", cache)["against"]["kl"]["value"] for cache in ("f32", "int8")]
    assert costs[0] == 0 < costs[1] < 0.005
