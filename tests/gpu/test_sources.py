"""What a program can be loaded from: a path, bytes, a file that is open; and the .ptd that one has forgotten."""

from __future__ import annotations

import io
import mmap
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

import webpte
from tests.gpu.test_loading import W, add_program
from tests.support.harness.counting import X, answer, counting_pte
from tests.support.harness.errors import check, raises
from tests.support.harness.writer import ptd_file


@pytest.fixture
def path(tmp_path):
    return counting_pte(tmp_path / "p.pte")


def runs(source) -> None:
    with webpte.load(source) as program:
        assert np.array_equal(program.method()(X), answer(1, 1))


def test_load_path_as_string_or_path(path):
    runs(path)
    runs(str(path))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_bytes_in_memory(path, kind):
    runs(kind(path.read_bytes()))


def test_files_that_are_open(path):
    with open(path, "rb") as file:
        runs(file)
        assert not file.closed  # it is the caller's
    with open(path, "rb", buffering=0) as raw:
        runs(raw)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        runs(mapped)
    runs(io.BytesIO(path.read_bytes()))


def test_load_file_reads_from_current_position(path, tmp_path):
    (tmp_path / "behind").write_bytes(b"head" + path.read_bytes())
    with open(tmp_path / "behind", "rb") as file:
        file.seek(4)
        runs(file)


def test_load_file_in_zip_archive(path, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(path, "p.pte")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, archive.open("p.pte") as file:
        runs(file)


def test_data_from_each_of_them(tmp_path):
    ptd_file(tmp_path / "w.ptd", add_program(tmp_path / "p.pte", where="external"))
    data = (tmp_path / "w.ptd").read_bytes()
    x = np.ones((5, 7), np.float32)
    for value in ([tmp_path / "w.ptd"], (data,), iter([io.BytesIO(data)])):
        with webpte.load((tmp_path / "p.pte").read_bytes(), value) as program:
            assert np.array_equal(program.method()(x), x + W)


def test_snapshot_identifies_program_by_bytes(path, tmp_path):
    with webpte.load(path) as program:
        program.method()(X)
        program.method().snapshot(tmp_path / "state")
    with webpte.load(path.read_bytes()) as program:
        program.method().restore(tmp_path / "state")
        assert np.array_equal(program.method()(X), answer(1, 2))


def test_source_error_names_argument(path, tmp_path):
    with raises(webpte.FormatError, "<source>: ", "a text file"):
        webpte.load(b"not a program at all")
    with open(path, "rb") as file, raises(webpte.FormatError, path.name):
        file.read(1)
        webpte.load(file)
    with (
        open(path, encoding="latin-1") as text,
        raises(webpte.InputError, "source", "open(path, 'rb')", code="text_mode"),
    ):
        webpte.load(text)  # type: ignore[arg-type]
    with raises(webpte.FormatError, "<data[0]>: ", "no tensors"):
        webpte.load(path, data=[b"no tensors"])


def test_load_file_failing_while_read_raises(path):
    class Broken:
        def read(self, size: int = -1) -> bytes:
            raise ConnectionError("the line is dead")

    with raises(webpte.InputError, "source", "the line is dead", code="unreadable"):
        webpte.load(Broken())
    file = open(path, "rb")  # noqa: SIM115
    file.close()
    with raises(webpte.InputError, "source", "closed file", code="unreadable"):
        webpte.load(file)


def test_load_refused_later_file_closes_all(path, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(webpte.FormatError):
            webpte.load(path, data=[tmp_path / "missing.ptd"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_load_missing_ptd_suggests_one_next_to_program(tmp_path, monkeypatch):
    keyed = add_program(tmp_path / "p.pte", where="external")
    (tmp_path / "other.ptd").write_bytes(b"not one of ours")
    with pytest.raises(webpte.DataError) as caught:
        webpte.load(tmp_path / "p.pte")
    assert "other.ptd" not in str(caught.value) and caught.value.keys == tuple(keyed)
    ptd_file(tmp_path / "weights.ptd", keyed)
    expected = f"load({str(tmp_path / 'p.pte')!r}, data=[{str(tmp_path / 'weights.ptd')!r}])"
    with pytest.raises(webpte.DataError) as caught:
        webpte.load(tmp_path / "p.pte")
    check(caught.value, expected)
    assert caught.value.keys == tuple(keyed)
    with eval(f"webpte.{expected}") as program:  # what it says works
        assert program.method_names == ("forward",)
    monkeypatch.chdir(tmp_path)
    with raises(webpte.DataError, "load('p.pte', data=['weights.ptd'])"):
        webpte.load(Path("p.pte"))
