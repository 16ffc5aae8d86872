"""Many sequences of real programs at once: the small version of `python -m tests.studies batching`."""

from __future__ import annotations

import pytest

from tests.studies.batching import measures
from tests.support.models.tiny_llm import CONTEXT, write_tiny_llm
from webpte.llm import LLM


@pytest.fixture(scope="module", params=["f32", "int8"])
def llm(request, tmp_path_factory):
    path = write_tiny_llm(tmp_path_factory.mktemp("llm")) / "tiny.pte"
    with LLM.load(path, kv_cache=request.param) as model:
        model.stop_tokens = frozenset()
        yield model


def test_batch_tokens_equal_single_sequences(llm):
    assert llm.batching_unsupported_reason is None
    assert measures.different(llm, 60, CONTEXT - 24, 6, (4, 24)) == []


def test_decode_steps_create_no_device_objects(llm):
    result = measures.steady(llm, 8, 12)
    assert (result.lowerings, result.objects) == (0, 0)


def test_batch_long_prompt_is_prefilled_in_chunks(llm):
    assert measures.gaps(llm, 3, 40).passes >= 3


def test_batch_shared_prefix_is_computed_once(llm):
    assert measures.prefix(llm, 4, 32).computed == 0
