"""What has memory on a device cannot be sent to another process, and says what to send instead."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte import container as c


def test_program_and_method_refuse_pickle_and_copy(tmp_path):
    values = [c.VkTensor(c.DType.FLOAT32, (3,)) for _ in range(2)]
    simple_pte(tmp_path / "p.pte", values, [("aten.relu.default", (0, 1))], [0], [1])
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        for thing in (program, method):
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                with raises(webpte.InputError, type(thing).__name__, "path", code="not_picklable"):
                    attempt(thing)


@pytest.mark.parametrize("function", [webpte.load, webpte.bundle])
def test_signature_has_no_addresses(function):
    assert " at 0x" not in str(inspect.signature(function))
