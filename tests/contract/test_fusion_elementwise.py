"""Real programs compute the same with calls joined as with each on its own."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.gate import slow_but
from tests.support.models.named import SLOW

PASSES = ["identities", "elementwise", "epilogues", "layouts"]
# name -> dispatches saved by joining elementwise calls, and by all of the passes, at least
SAVED = {
    "minilm": (9, 64),
    "llama": (4, 10),
    "llama_nokv": (4, 10),
    "half": (1, 1),
    "mtcnn_pnet": (6, 9),
    "mtcnn_onet": (10, 15),
    "hf_resnet": (5, 9),
    "hf_vit": (2, 18),
    "hf_gpt2": (20, 26),
    "hf_deberta": (30, 38),
}


@pytest.mark.parametrize("name", slow_but(set(SAVED) - SLOW, SAVED))
@pytest.mark.parametrize("all_passes", [False, True], ids=["elementwise", "all"])
def test_joined_calls_agree_with_single_ones(name, all_passes):
    exported = export(name)
    passes = PASSES if all_passes else ["elementwise"]
    with (
        webpte.load(exported.path, exported.data, passes=()) as single,
        webpte.load(exported.path, exported.data, passes=passes) as joined,
    ):
        plain, fused = single.method(), joined.method()
        for sequence in exported.sequences[:4]:
            plain.reset()
            fused.reset()
            for step in sequence[:4]:
                want, before = run(plain, step.inputs)
                got, after = run(fused, step.inputs)
                assert before - after >= SAVED[name][all_passes]
                for one, other in zip(want, got, strict=True):
                    largest = np.abs(one, dtype=np.float64).max(initial=0)
                    np.testing.assert_allclose(other, one, 1e-5, 1e-5 * largest, equal_nan=False, strict=True)


def run(method, inputs):
    """Return the outputs, and how many dispatches they took."""
    before = method.counters.snapshot()
    outputs = method.run(inputs)
    return outputs, method.counters.since(before).dispatches
