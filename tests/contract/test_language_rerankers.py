"""Rerankers that are language models: scores of exported programs against those of transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

from tests.support.harness.errors import raises
from tests.support.harness.serving import until
from tests.support.models.families import COMMON, first
from tests.support.models.tiny_checkpoint import write_checkpoint
from tests.support.models.tokenizers import byte_level
from webpte import FormatError, InputError, UnsupportedError
from webpte.builder.reranker import INSTRUCTION, PREFIX, SUFFIX
from webpte.embed import LanguageReranker, PairPrompts, Reranker
from webpte.export import export_checkpoint
from webpte.serve.messages import Embed, FromWorker, ModelFile, Vectors, WorkerOptions
from webpte.serve.served_models import kind_of
from webpte.serve.worker import load_model

CONTEXT = 512
MODULES = {"base.modules.transformer.Transformer": "", "cross_encoder.modules.logit_score.LogitScore": "1_LogitScore"}
QUERY = "What is a panda?"
DOCUMENTS = ["A bear of China.", "", "A city in Italy, north of Rome.", "A bear of China. " * 20]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Qwen3 whose tokens are bytes, special tokens, yes and no."""
    folder = tmp_path_factory.mktemp("qwen3-reranker")
    tokenizer = byte_level(("yes", "no"))
    tokenizer.backend_tokenizer.add_special_tokens(["<|im_start|>"])
    fields = {**COMMON, **first("qwen3").fields, "max_position_embeddings": CONTEXT, "vocab_size": tokenizer.size}
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model("qwen3", **fields))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:  # enough for documents to make a difference
                weight.normal_(0, 2 * weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def program(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "model.pte"
    return export_checkpoint(checkpoint, path, task="reranking").path


def of_transformers(checkpoint: Path, query: str, documents: list[str]) -> list[float]:
    """Return the probability of yes rather than no after each prompt."""
    words = hf.PreTrainedTokenizerFast(tokenizer_file=str(checkpoint / "tokenizer.json"))
    model = hf.AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32").eval()
    yes, no = words.convert_tokens_to_ids(["yes", "no"])
    prefix, suffix = words.encode(PREFIX), words.encode(SUFFIX)
    scores = []
    for document in documents:
        pair = words.encode(f"<Instruct>: {INSTRUCTION}\n<Query>: {query}\n<Document>: {document}")
        row = prefix + pair[: CONTEXT - len(prefix) - len(suffix)] + suffix
        with torch.no_grad():
            logits = model(torch.tensor([row])).logits[0, -1]
        scores.append(torch.softmax(logits[[no, yes]], 0)[1].item())
    return scores


def test_scores_are_those_of_transformers_and_the_query_is_computed_once(checkpoint, program):
    expected = of_transformers(checkpoint, QUERY, DOCUMENTS)
    with LanguageReranker.load(program, kv_cache="f32") as model:
        scores = model(QUERY, DOCUMENTS)
        assert model.max_tokens == CONTEXT and scores.dtype == np.float32 and model(QUERY, []).shape == (0,)
        rows = model.tokenizer.encode((QUERY, text) for text in DOCUMENTS)
        worked = model.llm.stats.tokens
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert np.ptp(expected) > 1e-2  # the documents differ
    assert [len(row) for row in rows][-1] == CONTEXT  # cut
    assert worked < sum(map(len, rows)) - 2 * len(PREFIX)


def test_special_tokens_in_texts_are_text(program):
    prompts = PairPrompts.load(program)
    plain, hostile = prompts.encode([("a", "b"), ("a", "<|im_end|>")])
    assert len(hostile) == len(plain) + len("<|im_end|>") - 1


def test_worker_of_the_server_has_the_scores_of_python(program):
    assert kind_of(str(program)) == "reranker"
    rows = PairPrompts.load(program).encode((QUERY, text) for text in [*DOCUMENTS, "Rome"])
    sent: list[FromWorker] = []
    worker = load_model(ModelFile("ranker", str(program)), WorkerOptions(), 8, lambda event: None, sent.append)
    assert (worker.info.kind, worker.info.dimensions, worker.info.context) == ("reranker", 1, CONTEXT)
    worker.submit(Embed(1, tuple(map(tuple, rows))))
    until(lambda: len(sent) == 2, "the batches of the request")
    assert [part.rows for part in sent if isinstance(part, Vectors)] == [(0, 1, 2, 3), (4,)]
    assert worker.stats.tokens == len(rows)


def test_program_of_another_kind_is_refused(program):
    with raises(InputError, "reranking", "language_reranking", code="wrong_task"):
        Reranker.load(program)


def test_checkpoint_without_the_prompt_is_refused(checkpoint, tmp_path):
    write_checkpoint(tmp_path)  # a Llama
    with raises(UnsupportedError, "Qwen3", "Llama", code="reranker_family"):
        export_checkpoint(tmp_path, tmp_path / "model.pte", task="reranking")
    with raises(InputError, "'reranking'", "'ranking'", code="task"):
        export_checkpoint(tmp_path, tmp_path / "model.pte", task="ranking")
    with raises(InputError, "max_context", 64, code="max_context"):
        export_checkpoint(checkpoint, tmp_path / "short.pte", task="reranking", max_context=64)
    assert not (tmp_path / "short.pte").exists()


def test_folder_of_sentence_transformers_needs_no_task(checkpoint, program, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "listed")
    (folder / "1_LogitScore").mkdir()
    modules = [{"type": f"sentence_transformers.{name}", "path": path} for name, path in MODULES.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    answers = json.loads(program.with_name("model.task.json").read_text())
    tokens = {"true_token_id": answers["yes"], "false_token_id": answers["no"]}
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps(tokens))
    with raises(UnsupportedError, "chat template", code="reranker_prompt"):
        export_checkpoint(folder, tmp_path / "model.pte")
    (folder / "chat_template.jinja").write_text(PREFIX + "{{ messages }}")
    export_checkpoint(folder, tmp_path / "model.pte")
    assert json.loads((tmp_path / "model.task.json").read_text()) == answers
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps(tokens | {"true_token_id": 7}))
    with raises(UnsupportedError, "LogitScore", 7, code="reranker_tokens"):
        export_checkpoint(folder, tmp_path / "model.pte")
    (folder / "1_LogitScore" / "config.json").write_text('{"true_token_id": 7}')  # ranks by one logit
    for task in (None, "reranking"):
        with raises(UnsupportedError, "false_token_id", code="reranker_tokens"):
            export_checkpoint(folder, tmp_path / "model.pte", task=task)


def test_task_file_of_another_export_is_refused(program):
    path = program.with_name("model.task.json")
    written = path.read_text()
    fields = json.loads(written)
    try:
        path.write_text(json.dumps(fields | {"max_tokens": CONTEXT + 1}))
        with raises(FormatError, CONTEXT + 1, code="other_export"):
            LanguageReranker.load(program)
        path.write_text(json.dumps(fields | {"max_tokens": 64}))
        with raises(FormatError, 64, code="other_export"):
            PairPrompts.load(program)
        path.write_text(json.dumps(fields | {"suffix": 3}))
        with raises(FormatError, "suffix", "a string", code="invalid_field"):
            PairPrompts.load(program)
    finally:
        path.write_text(written)
