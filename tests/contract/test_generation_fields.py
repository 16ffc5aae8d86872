"""Fields that transformers' generation config and image processors have: each is applied, ignored or has a rule."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from tests.support.models.tiny_gemma3_vl import write_gemma3_vl
from tests.support.models.tiny_lfm2_vl import write_lfm2_vl
from tests.support.models.tiny_qwen3_5_vl import write_qwen3_5_vl
from tests.support.models.tiny_vlm import write_vlm
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.llm.defaults import read_generation_config
from webpte.llm.image_processor import image_processor

MARK = "mark"  # a value that no field has


def test_generation_config_fields_are_known(tmp_path, caplog):
    from transformers import GenerationConfig

    names = [name for name in vars(GenerationConfig()) if name not in ("top_k", "top_p", "min_p", "repetition_penalty")]
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({name: MARK for name in names}))
    read_generation_config(path)
    assert "unknown field" not in caplog.text
    assert caplog.text.count(MARK) > 15  # those with an effect


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("gemma3.image_processing_pil_gemma3", "Gemma3ImageProcessorPil"),
        ("idefics3.image_processing_pil_idefics3", "Idefics3ImageProcessorPil"),
        ("smolvlm.image_processing_pil_smolvlm", "SmolVLMImageProcessorPil"),
        ("qwen2_vl.image_processing_pil_qwen2_vl", "Qwen2VLImageProcessorPil"),
    ],
)
def test_image_processor_default_fields_are_known(module, name, caplog):
    kind: Any = getattr(importlib.import_module(f"transformers.models.{module}"), name)
    image_processor("here", json.loads(kind().to_json_string()))
    assert "not applied" not in caplog.text


WRITERS = (write_vlm, write_gemma3_vl, write_lfm2_vl, write_qwen3_5_vl)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_fields_of_models_with_images_are_known(write, tmp_path, caplog):
    write(tmp_path)
    read_checkpoint(tmp_path)
    assert "not applied" not in caplog.text
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vision_feature": "cls"}))
    read_checkpoint(tmp_path)
    assert 'vision_feature = "cls": an unknown field' in caplog.text
