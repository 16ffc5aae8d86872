"""The journal of a block: finished rows survive the end of the process, and damage loses only what follows it."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.batch import journal as module
from webpte.batch.journal import RowJournal, journal_path
from webpte.batch.results import FinishedRows, in_order

NAME = "x.parquet/g00000-r000000000-0123456789abcdef.parquet"


def text_rows(*rows: int, error: str | None = None) -> FinishedRows:
    columns = {
        "generated": [None if error else f"row {row}\n\ud800 ä" for row in rows],
        "prompt_tokens": [7] * len(rows),
    }
    return FinishedRows(columns, [error] * len(rows), 7, 9, 0.5, rows=rows)


def vector_rows(*rows: int) -> FinishedRows:
    vectors = np.array([[row, np.nan, np.float32(row) / 3] for row in rows], np.float32)
    return FinishedRows({"embedding": vectors, "score": vectors[:, 0]}, [None] * len(rows), rows=rows)


def write(folder, *parts):
    with RowJournal(folder, NAME) as journal:
        for part in parts:
            journal.append(part)
    return journal.path


def test_row_journal_next_run_reads_what_was_appended(tmp_path):
    write(tmp_path, text_rows(3), text_rows(0, 2, error="no"))
    with RowJournal(tmp_path, NAME) as journal:
        assert journal.rows == {0, 2, 3}
        journal.append(text_rows(1))
        result = in_order(journal.parts)
    assert result.columns["generated"] == [None, "row 1\n\ud800 ä", None, "row 3\n\ud800 ä"]
    assert (result.errors, result.tokens, result.computed_tokens) == (["no", None, "no", None], 21, 27)
    assert RowJournal(tmp_path, NAME).rows == {0, 1, 2, 3}


def test_row_journal_numbers_are_bitwise_equal(tmp_path):
    part = vector_rows(5, 1, 8)
    write(tmp_path, part)
    (stored,) = RowJournal(tmp_path, NAME).parts
    for name, values in part.columns.items():
        assert stored.columns[name].tobytes() == values.tobytes() and stored.columns[name].shape == values.shape


def test_row_journal_cut_at_any_byte_keeps_whole_records(tmp_path):
    """A kill in the middle of a write leaves a part of a record. What is appended after it is read again."""
    parts = [text_rows(0), text_rows(1, 2), text_rows(3)]
    path = write(tmp_path, *parts)
    content, ends = path.read_bytes(), []
    for count in range(1, 4):
        path.unlink()
        ends.append(len(write(tmp_path, *parts[:count]).read_bytes()))
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        known = sum(end <= length for end in ends)
        expected = {row for part in parts[:known] for row in part.rows}
        assert RowJournal(tmp_path, NAME).rows == expected, length
    for length in (0, 3, ends[0] - 1, ends[1] + 5):
        path.write_bytes(content[:length])
        before = RowJournal(tmp_path, NAME).rows
        write(tmp_path, text_rows(9))
        assert RowJournal(tmp_path, NAME).rows == before | {9}


def test_row_journal_flipped_bit_is_never_read_as_a_row(tmp_path):
    path = write(tmp_path, text_rows(0), text_rows(1))
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        for part in RowJournal(tmp_path, NAME).parts:
            assert part == text_rows(*part.rows) or part.seconds == 0
            assert part.columns == text_rows(*part.rows).columns
    assert RowJournal(tmp_path, NAME).rows in ({0}, set())


def test_row_journal_record_is_with_the_system_before_append_returns(tmp_path):
    """Another process reads it while the journal is open, so the end of this process does not lose it."""
    with RowJournal(tmp_path, NAME) as journal:
        for row in range(3):
            journal.append(text_rows(row))
            assert RowJournal(tmp_path, NAME).rows == set(range(row + 1))


def test_row_journal_known_rows_are_not_written_again(tmp_path):
    path = write(tmp_path, text_rows(0))
    size = path.stat().st_size
    write(tmp_path, text_rows(0))
    assert path.stat().st_size == size and len(RowJournal(tmp_path, NAME).parts) == 1


def test_row_journal_left_by_an_error_is_flushed_to_the_disk(tmp_path, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    with pytest.raises(KeyboardInterrupt), RowJournal(tmp_path, NAME) as journal:
        journal.append(text_rows(0))
        raise KeyboardInterrupt
    assert flushed


def test_row_journal_is_flushed_while_rows_are_computed(tmp_path, monkeypatch):
    flushed = threading.Event()
    fsync = os.fsync
    monkeypatch.setattr(module, "SYNC_SECONDS", 0.0)

    def noted(file: int) -> None:
        fsync(file)
        flushed.set()

    monkeypatch.setattr(os, "fsync", noted)
    with RowJournal(tmp_path, NAME) as journal:
        journal.append(text_rows(0))
        assert flushed.wait(30)


def test_row_journal_full_disk_is_an_error(tmp_path, monkeypatch):
    def full(*arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    with RowJournal(tmp_path, NAME) as journal:
        monkeypatch.setattr(os, "write", full)
        with raises(webpte.InputError, "No space", journal_path(tmp_path, NAME), code="write_failed"):
            journal.append(text_rows(0))
        assert not journal.rows


def test_in_order_of_no_rows_keeps_the_width_of_vectors():
    result = in_order([FinishedRows({"embedding": np.empty((0, 4), np.float32)}, [])])
    assert result.columns["embedding"].shape == (0, 4) and result.errors == []
