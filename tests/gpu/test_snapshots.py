"""Snapshots belong to a program with its weights, wherever those live."""

from __future__ import annotations

import numpy as np

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, DelegateBlob, Method, ptd_file, pte_file, vk_blob
from webpte import container as c

F32 = c.DType.FLOAT32


def write_program(folder, weight):
    """Return a cache of 8 rows, into which the input plus a weight is written; the weight lives in a .ptd file."""

    def tensor(*dims, **options):
        return c.VkTensor(F32, dims, **options)

    def border(*dims):
        return c.TensorValue(F32, dims, tuple(range(len(dims))), place=ALONE)

    blob = vk_blob(
        [
            tensor(1, 1, 1, 4),
            tensor(1, 8, 1, 4, constant_id=0),
            c.VkSymInt(0),
            tensor(1, 1, 1, 4),
            tensor(1, 1, 1, 4, constant_id=1),
            c.VkInt(1),
            tensor(1),
        ],
        [("aten.add.Tensor", (0, 4, 5, 3)), ("update_cache.default", (3, 1, 2, 6))],
        [0, 2],
        [6],
        [np.zeros((1, 8, 1, 4), np.float32), c.VkConstant(None, "w", 16)],
    )
    values = [border(1, 1, 1, 4), c.IntValue(0), border(1)]
    calls = [c.DelegateCall(0, (0, 1, 2))]
    method = Method(values=values, inputs=[0, 1], outputs=[2], instructions=calls, delegates=[DelegateBlob(blob)])
    pte_file(folder / "p.pte", [method])
    ptd_file(folder / f"{weight}.ptd", {"w": np.full(4, weight, np.float32)})
    return folder / "p.pte", [folder / f"{weight}.ptd"]


def test_restore_state_of_other_weights_is_refused(tmp_path):
    state = tmp_path / "state"
    with webpte.load(*write_program(tmp_path, 1.0)) as program:
        method = program.method()
        method(np.zeros((1, 1, 1, 4), np.float32), 0)
        method.snapshot(state)
        method.restore(state)
    refused = raises(webpte.DataError, "state", code="other_program")
    with webpte.load(*write_program(tmp_path, 1000.0)) as other, refused:
        other.method().restore(state)
    with webpte.load(*write_program(tmp_path, 1.0)) as again:
        again.method().restore(state)


def test_restore_note_refused_before_state_changes(tmp_path):
    with webpte.load(*write_program(tmp_path, 1.0)) as program:
        method = program.method()
        method(np.zeros((1, 1, 1, 4), np.float32), 0)
        method.snapshot(tmp_path / "state", b"a note")
        method(np.full((1, 1, 1, 4), 5, np.float32), 1)
        method.snapshot(tmp_path / "later")

        def refuse(note: bytes) -> None:
            assert note == b"a note"
            raise webpte.InputError("not this one")

        with raises(webpte.InputError, "not this one"):
            method.restore(tmp_path / "state", refuse)
        method.snapshot(tmp_path / "unchanged")
        assert (tmp_path / "unchanged").read_bytes() == (tmp_path / "later").read_bytes()
        assert method.restore(tmp_path / "state") == b"a note"


def test_files_are_hashed_only_for_snapshots(tmp_path):
    with webpte.load(*write_program(tmp_path, 1.0)) as program:
        method = program.method()
        assert "_contents" not in program.__dict__
        method.snapshot(tmp_path / "state")
        assert "_contents" in program.__dict__
