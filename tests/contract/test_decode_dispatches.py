"""The dispatches of a decode step at 2,000 keys on a GPU: the layers and heads of published models, of a tiny width."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

import webpte
from tests.studies.families.states import GPU
from tests.support.models.families import first
from webpte.builder import build_program
from webpte.bundles.methods import planned
from webpte.bundles.program_kinds import _call as engine_call
from webpte.fusion.batching import with_sampled_slots
from webpte.fusion.llm_rewrites import SAMPLING_WORDS
from webpte.graph import DType

CONTEXT = 2053
POSITIONS = (0, 255, 256, 1999, CONTEXT - 1)


@pytest.mark.parametrize(
    ("layers", "heads", "key_heads", "width", "most", "caches"),
    [(30, 9, 3, 288, 155, [DType.FLOAT16]), (16, 32, 8, 128, 85, [DType.FLOAT32, DType.FLOAT16, DType.INT8])],
    ids=["SmolLM2-135M", "Llama 3.2 1B"],
)
def test_decode_needs_no_more_dispatches_at_2000_keys(layers, heads, key_heads, width, most, caches, tmp_path):
    shape = {"num_attention_heads": heads, "num_key_value_heads": key_heads, "head_dim": 64, "hidden_size": width}
    tiny = first("llama")
    more = {"num_hidden_layers": layers, **shape, "tie_word_embeddings": True, "max_position_embeddings": CONTEXT}
    replace(tiny, fields={**more, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}).save(tmp_path)
    path = build_program(tmp_path, tmp_path / "model.pte", quantize="4w", max_context=CONTEXT, max_tokens=8)
    for dtype in caches:
        rewrite = functools.partial(with_sampled_slots, slots=1, caches={DType.FLOAT32: dtype})
        steps = [engine_call(1, 1, 1, len(SAMPLING_WORDS), 0, position) for position in POSITIONS]
        with webpte.load(path) as program:
            schedules = [schedule for _, schedule in planned(program, "forward", GPU, steps, rewrite).known()]
        assert {len(schedule.dispatches) for schedule in schedules} == {most}
        assert not [d for schedule in schedules for d in schedule.dispatches if "merge" in d.kernel.template]
