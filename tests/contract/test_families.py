"""Families of language models: what `webpte export` writes answers as transformers does, alone and in batches.

`test_built_programs.py` compares every variant.
"""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.studies.batching import measures
from tests.studies.families import states
from tests.studies.families.measuring import TOLERANCE, measured
from tests.studies.families.page import DOCS
from tests.support.harness.gate import slow_but
from tests.support.models import gguf_families
from tests.support.models.families import CONTEXT, first, tinies
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.families import families
from webpte.llm import LLM

# Each export takes its time: what is unlike the others, and of 4 bits one. `python -m tests.studies families` takes
# all.
IN_F32 = ("gemma3", "gemma4", "lfm2", "qwen3")
IN_4_BITS = ("qwen3",)


@pytest.mark.parametrize("family", slow_but(IN_F32, tinies()))
def test_family_export_logits_equal_transformers(family):
    assert measured(first(family)).error() <= 1e-5


@pytest.mark.parametrize("family", slow_but(IN_4_BITS, tinies()))
def test_family_export_4_bit_logits_equal_transformers(family):
    assert measured(first(family), "4w").error() <= TOLERANCE


def test_gguf_layers_that_draft_are_left_out(tmp_path, monkeypatch, caplog):
    """Newer converters store Qwen3.5's draft layer as a block after the others."""
    tiny = tinies()["qwen3_5"]["tied"]
    tiny.save(tmp_path)
    expected = read_checkpoint(gguf_families.write_gguf(tmp_path, tmp_path / "plain.gguf"))
    keys = gguf_families.keys
    more = {"block_count": 5, "nextn_predict_layers": 1}
    monkeypatch.setattr(gguf_families, "keys", lambda config: {**keys(config), **more})
    draft = {"blk.4.nextn.eh_proj.weight": np.ones((32, 64)), "blk.4.attn_norm.weight": np.ones(32)}
    monkeypatch.setattr(gguf_families, "rotary_tensors", lambda config: draft)
    source = read_checkpoint(gguf_families.write_gguf(tmp_path, tmp_path / "model.gguf"))
    assert source.architecture == expected.architecture and source.weights.sources == expected.weights.sources
    assert "left out: layers that draft" in caplog.text


def test_families_with_gguf_are_all_tested():
    renamed = {name for name in tinies() if first(name).model_type in gguf_families.ARCHITECTURES}
    assert set(gguf_families.VARIANTS) == renamed | {name for name, known in families().items() if known.gguf_types}


@pytest.mark.parametrize("family", slow_but(IN_4_BITS, tinies()))
def test_family_dispatches_equal_the_table(family):
    with webpte.load(measured(first(family), "4w").path) as program:
        counts = states.dispatches(program)
    assert counts == states.known(DOCS.read_text())[0][family].counts, (
        "run python -m tests.studies families --states --write"
    )


@pytest.mark.parametrize("family", slow_but(IN_F32, tinies()))
def test_family_batch_tokens_equal_single(family):
    with LLM.load(measured(first(family)).path) as llm:
        llm.stop_tokens = frozenset()
        assert llm.batching_unsupported_reason is None
        assert measures.different(llm, 12, CONTEXT - 12, 4, (3, 9)) == []
