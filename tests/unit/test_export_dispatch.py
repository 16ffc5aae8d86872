"""The task of a checkpoint, found by its first bytes or its config.json, and refusals before any work."""

from __future__ import annotations

import json

import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.checkpoints.checkpoint import model_kind
from webpte.export import export_checkpoint

KINDS = {
    "LlamaForCausalLM": "language",
    "Gemma3ForCausalLM": "language",
    "BertModel": "encoder",
    "BertForMaskedLM": "encoder",
    "BertForSequenceClassification": "reranker",
    "ViTForImageClassification": "image classifier",
    "YolosForObjectDetection": "detector",
    "WhisperForConditionalGeneration": "speech",
}


@pytest.mark.parametrize(("architecture", "kind"), KINDS.items())
def test_model_kind_follows_architecture(tmp_path, architecture, kind):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert model_kind(tmp_path) == model_kind(tmp_path / "config.json") == kind


def test_model_kind_follows_other_files(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert model_kind(tmp_path) == "language"  # whose family is asked for next
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
    modules = [{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert model_kind(tmp_path) == "encoder"
    (tmp_path / "modules.json").write_text(json.dumps([modules[0], {"type": "x.LogitScore", "path": "1_LogitScore"}]))
    (tmp_path / "1_LogitScore").mkdir()
    (tmp_path / "1_LogitScore" / "config.json").write_text(json.dumps({"true_token_id": 9693, "false_token_id": 2152}))
    assert model_kind(tmp_path) == "language reranker"
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(60))
    assert model_kind(tmp_path / "x.gguf") == "language"


def test_model_kind_unsupported_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForTokenClassification"]}))
    with raises(webpte.UnsupportedError, "BertForTokenClassification", "ForCausalLM", code="unknown_architecture"):
        export_checkpoint(tmp_path, tmp_path / "x.pte")
    (tmp_path / "config.json").write_text("{")
    with raises(webpte.FormatError, "config.json", code="invalid_json"):
        export_checkpoint(tmp_path, tmp_path / "x.pte")


def test_options_of_another_kind_are_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    with raises(webpte.InputError, "'language'", "labels", "quantize", code="unknown_option"):
        export_checkpoint(tmp_path, tmp_path / "x.pte", labels=3)
    with raises(webpte.InputError, tmp_path / "no" / "x.pte", code="missing_folder"):
        export_checkpoint(tmp_path / "absent", tmp_path / "no" / "x.pte")
