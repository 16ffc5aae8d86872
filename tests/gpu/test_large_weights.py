"""Weights past what the device binds at once: split into parts, on small weights and on one of a real model's size."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.cases.embedding.embedding_byte import BIT2, BYTE, signed, unsigned
from tests.cases.embedding.embedding_q4 import BIT4, tokens
from tests.cases.embedding.embedding_q4 import Q4 as EMBEDDING
from tests.cases.q4.linear_q4 import DQ8, INT8, Q4, QCS, bias, codes, gated, int8, joined, rounded, scales, sums
from tests.cases.training.training import BACKWARD
from tests.studies.large.vocabulary import Vocabulary
from tests.support.harness.cases import OneOp, T, assert_close, case, choosing
from tests.support.harness.writer import Stream, simple_pte
from webpte import container as c
from webpte.container import DType

BINDING = "max-storage-buffer-binding-size"
SMALL = 16 << 10
# Each weight takes at least 40 KB, in rows that end at any address.
CASES = [
    case(Q4, T("n", 128), codes(1003, 64), scales(2, 1004), 64, bias(1004), n=(3, 1)),
    case(Q4, T("n", 96), codes(1003, 48), scales(3, 1003), 32, None, n=(3, 1)),
    case(Q4, T("n", 100), codes(1003, 52), scales(1, 1003), 100, bias(1003), n=(3, 1)),
    case(Q4, T("n", 81), codes(1003, 41), scales(1, 1003), 81, None, n=(2, 1)),
    case(QCS, T("n", 128), codes(1003, 64), scales(1003), n=(3, 1)),
    case(DQ8, T("n", 128), *rounded("n"), codes(1003, 64), sums(2, 1008), scales(2, 1004), 64, bias(1004), n=(3, 1)),
    joined(T("n", 96), (577, 131, 295), biased=True, n=(3, 1)),
    joined(T("n", 96), (1003,), residual=T("n", 1003), n=(3, 1)),
    joined(T("n", 100), (577, 131, 295), group=50, n=(3, 1)),
    gated(T("n", 96), 1003, n=(3, 1)),
    case(INT8, T("n", 64), int8(1003, 64), scales(1003), n=(3, 1), atol=1e-4),
    case(INT8, T("n", 47), int8(1003, 47), scales(1003), n=(3, 1), atol=1e-4),
    case(EMBEDDING, codes(1003, 64), scales(1003, 2), 64, tokens(3, "n", high=1002), True, n=(7, 2)),
    case(EMBEDDING, codes(1003, 41), scales(1003, 1), 82, tokens(3, "n", high=1002), False, n=(7, 2)),
    case(BIT4, codes(1003, 64), scales(1003, 1), scales(1003, 1), -8, 7, tokens(3, "n", high=1002), None, n=(7, 2)),
    case(BYTE, signed(1003, 47), scales(1003), None, -128, 127, tokens(3, "n", high=1002), n=(7, 2)),
    case(BIT2, unsigned(1003, 41), scales(1003, 4), None, -2, 1, tokens(3, "n", high=1002), n=(7, 2)),
    case(BACKWARD, T("n", 1003), codes(1003, 64), scales(2, 1004), 64, n=(3, 1), atol=1e-4),
    case(BACKWARD, T("n", 1003), codes(1003, 41), scales(1, 1003), 82, n=(3, 1), atol=1e-4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_equal_whole(case, tmp_path, device):
    program = OneOp(case)
    program.write(tmp_path / "case.pte")
    path = tmp_path / "case.pte"
    with webpte.load(path) as whole, webpte.load(path, limits={BINDING: SMALL}) as split:
        for sizes in case.sizes:
            program.check(split.method(), sizes)
        for loaded, least in ((whole, 1), (split, 3)):
            counters = loaded.method().counters
            before = counters.snapshot()
            program.check(loaded.method(), case.sizes[0])
            dispatches = counters.since(before).dispatches - (case.op == DQ8)  # one rounds the inputs
            assert dispatches == 1 if least == 1 else dispatches >= least
        assert split.method().plan.limits["max-storage-buffer-binding-size"] <= SMALL


# The head of Llama-3.2-1B.
ROWS, INNER, GROUP = 128256, 2048, 32
BLOCK = 4008  # rows made at once; 32 blocks


def head_codes(block: int) -> np.ndarray:
    """(BLOCK, INNER / 2) bytes, different in every row."""
    return np.random.default_rng(block).integers(0, 256, (BLOCK, INNER // 2), np.uint8)


def head_scales() -> np.ndarray:
    n, g = np.arange(ROWS, dtype=np.int64), np.arange(INNER // GROUP, dtype=np.int64)[:, None]
    return ((n * 7 + g * 13) % 97 + 1).astype(np.float32) / 4096  # (groups, ROWS)


def write_head(path) -> None:
    blocks = Stream(ROWS * INNER // 2, lambda: (head_codes(b).tobytes() for b in range(ROWS // BLOCK)))
    scale = head_scales()
    values = [
        c.VkTensor(DType.FLOAT32, (2, INNER)),
        c.VkTensor(DType.UINT8, (ROWS, INNER // 2), constant_id=0),
        c.VkTensor(DType.FLOAT32, scale.shape, constant_id=1),
        c.VkInt(GROUP),
        c.VkNull(),
        c.VkTensor(DType.FLOAT32, (2, ROWS)),
    ]
    simple_pte(path, values, [(Q4, range(6))], [0], [5], [blocks, scale], dynamic=True)


@pytest.mark.parametrize("variant", ["lanes", "shared", "tile"])
def test_parts_by_the_kernels_of_other_devices(variant, tmp_path, device):
    program = OneOp(joined(T("n", 96), (1003,), n=(3, 1)))
    program.write(tmp_path / "case.pte")
    with choosing(variant), webpte.load(tmp_path / "case.pte", limits={BINDING: SMALL}) as split:
        for sizes in program.case.sizes:
            program.check(split.method(), sizes)


def test_split_weights_large_head_equals_reference(tmp_path):
    path = tmp_path / "head.pte"
    write_head(path)
    x = np.random.default_rng(1).standard_normal((2, INNER)).astype(np.float32)
    block = ROWS // BLOCK - 1
    sampled = head_codes(block)[::37]
    rows = np.arange(block * BLOCK, ROWS)[::37]
    weight = np.stack([sampled & 15, sampled >> 4], axis=-1).reshape(len(rows), -1) - 8.0
    weight *= np.repeat(head_scales()[:, rows].T, GROUP, axis=1)
    expected = x @ weight.T
    outputs = []
    for limit, parts in ((128 << 20, 1), (64 << 20, 2)):
        with webpte.load(path, limits={BINDING: limit}) as program:
            head = program.method()
            before = head.counters.snapshot()
            outputs += [head(x), head(x[:1])]
            assert head.counters.since(before).dispatches == 2 * parts
            assert head.plan.limits[BINDING] <= limit
    for several, single in (outputs[:2], outputs[2:]):
        assert_close(several[:, rows], expected, 1e-4, 1e-5, "two rows")
        assert_close(single[:, rows], expected[:1], 1e-4, 1e-5, "one row")
    # Every row, the sampled ones and the others.
    assert_close(outputs[2], outputs[0], 0, 0, "two rows, split")
    assert_close(outputs[3], outputs[1], 0, 0, "one row, split")


@pytest.mark.parametrize("bits", [4, 8])
def test_split_weights_vocabulary_equals_whole(bits, tmp_path, device):
    """Embedding and head, as `python -m tests.studies large vocabulary` runs them at the size of Gemma 3's."""
    layer = Vocabulary(rows=1024, width=96, bits=bits, block=64)
    limits = layer.check(tmp_path / "small.pte", {BINDING: SMALL})
    assert limits[BINDING] <= SMALL < layer.bytes
