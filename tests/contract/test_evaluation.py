"""`webpte eval` and the report of an export, against torch's own arithmetic on the modules that were exported."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.export.exporting import export
from tests.support.harness.errors import raises
from tests.support.harness.reports import reported
from tests.support.models import talker
from tests.support.models.llama import llama
from tests.support.models.tiny_llm import CHUNK, CONTEXT, write_tokenizer
from webpte import CancelledError, CancelToken, InputError
from webpte.builder.context import ProgramSizes
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.export.report import eager_predictions, quality_lines, quality_measure, write_quality
from webpte.llm import LLM, LogitsError
from webpte.llm.context import ContextLimit
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
    """Yield one token at a time, from an empty cache: not how `Measuring` calls it."""
    for name, buffer in each.named_buffers():
        if "cache" in name:
            buffer.zero_()
    with torch.no_grad():
        for at, token in enumerate(window.tokens[:-1]):
            logits = each(torch.tensor([[token]]), {"input_pos": torch.tensor([at])})
            if at >= window.first - 1:
                yield logits  # (1, V)


@pytest.mark.parametrize(("stride", "windows"), [(None, 3), (48, 4)])
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


# -- the report of an export ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talker")
    talker.write_checkpoint(folder)
    return read_checkpoint(folder)


def test_evaluate_module_long_calls_leave_it_unchanged():
    each = module("float")
    before = {name: buffer.clone() for name, buffer in each.named_buffers()}
    window = rolling_windows(TextTokens([ord(c) for c in TEXT], (), None), CONTEXT)[1]
    results = list(eager_predictions(each, window, CHUNK))
    assert len(results) > 1 and sum(len(targets) for _, targets in results) == window.scored
    one_by_one = torch.cat(list(eager(module("float"), window))).numpy()
    assert np.abs(np.concatenate([logits for logits, _ in results]) - one_by_one).max() < 1e-4
    assert all(torch.equal(buffer, before[name]) for name, buffer in each.named_buffers())
    assert each.generate_full_logits is False


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("webpte.export.report.evaluation_text", lambda: TEXT)


def report(source, done, asked=None):
    with quality_measure(module("float"), source, ProgramSizes(ContextLimit(CONTEXT), CHUNK + 1), asked) as measure:
        return measure(module(done))


def test_quality_report_separates_float_from_quantized(source, tmp_path, short):
    same, other = report(source, "float"), report(source, "4w")
    assert same["tokens"] == other["tokens"] == len(TEXT)
    assert same["kl"] == {"value": 0, "error": 0} and same["agreement"]["value"] == 1
    assert same["perplexity"] == same["float_perplexity"] == other["float_perplexity"]
    assert other["kl"]["value"] > 1e-4 and other["perplexity"] != other["float_perplexity"]
    path = write_quality(tmp_path / "m.pte", other)
    assert path.name == "m.quality.json" and json.loads(path.read_text()) == other
    assert [line.split(" ")[0] for line in quality_lines(other)] == ["KL", "perplexity"]


@pytest.mark.slow  # a whole export; test_quantization.py has the command with one that is left out
def test_export_quantized_writes_quality(tmp_path, capsys, short, monkeypatch):
    monkeypatch.setattr(talker, "LAYERS", 1)  # each takes seconds to export
    talker.write_checkpoint(tmp_path / "talker")
    arguments = ("export", tmp_path / "talker", "-o", tmp_path / "m.pte", "--quantize", "4w", "--max-context", 64)
    text = reported(capsys, *arguments, "--max-prefill", 32, "--quality")
    written = json.loads((tmp_path / "m.quality.json").read_text())
    assert text["quality"] == written and written["bytes"] == (tmp_path / "m.pte").stat().st_size
    with LLM.load(tmp_path / "m.pte") as program:
        result = evaluate(program, TEXT)
    assert result.perplexity == pytest.approx(tuple(written["perplexity"].values()), rel=1e-4)
    assert (result.tokens, result.windows) == (written["tokens"], written["windows"])


def test_large_models_are_measured_when_asked(source, short, monkeypatch):
    monkeypatch.setattr("webpte.export.report.MAX_FLOAT_BYTES", 1000)
    left = report(source, "4w")
    assert list(left) == ["left_out"] and "1 kB" in left["left_out"] and "--quality" in left["left_out"]
    assert list(quality_lines(left)) == [f"quality was not measured: {left['left_out']}"]
    assert report(source, "4w", asked=True)["tokens"] == len(TEXT)
    assert report(source, "4w", asked=False) is None


def test_large_vocabularies_are_measured_on_fewer_tokens(source, short, monkeypatch):
    monkeypatch.setattr("webpte.export.report.MAX_PREDICTION_BYTES", 4 * source.architecture.vocab_size * 50)
    assert report(source, "4w")["tokens"] == 50


def test_export_quality_unmeasurable_still_exports(source, short):
    few = replace(source, architecture=replace(source.architecture, vocab_size=60))
    largest = max(talker.CHARACTERS.index(character) for character in TEXT + "~")  # its end-of-text token comes first
    left_out = report(few, "4w")["left_out"]
    assert f"token {largest}" in left_out and "60" in left_out
    assert "tokenizer.json" in report(replace(source, tokenizer="{}"), "4w")["left_out"]
