"""Files and folders that are written beside their place leave nothing, whatever ends the work."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import webpte
from tests.support.harness.errors import raises
from webpte import partial_files
from webpte.partial_files import atomic_file, output_file, partial_path, remove_all


def test_atomic_file_appears_when_it_is_complete(tmp_path):
    target = tmp_path / "a.txt"
    with atomic_file(target) as temporary:
        Path(temporary).write_text("whole", encoding="utf-8")
        assert not target.exists()
    assert target.read_text() == "whole" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_atomic_file_that_fails_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "a.txt"
    target.write_text("before")

    def fail():
        with atomic_file(target) as temporary:
            Path(temporary).write_text("a part", encoding="utf-8")
            raise error

    with pytest.raises(error):
        fail()
    assert target.read_text() == "before" and list(tmp_path.iterdir()) == [target]
    assert not partial_files._paths


def test_partial_path_that_was_moved_away_stays_there(tmp_path):
    with partial_path(tmp_path / "part"):
        (tmp_path / "part").mkdir()
        os.rename(tmp_path / "part", tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_remove_all_removes_files_and_folders_in_use(tmp_path):
    with partial_path(tmp_path / "folder"), partial_path(tmp_path / "file"):
        (tmp_path / "folder" / "inside").mkdir(parents=True)
        (tmp_path / "file").write_text("")
        remove_all()
        assert not list(tmp_path.iterdir())


def test_remove_all_leaves_the_files_of_another_process(tmp_path, monkeypatch):
    with partial_path(tmp_path / "file"):
        (tmp_path / "file").write_text("")
        monkeypatch.setattr("webpte.partial_files.os.getpid", lambda: -1)  # a fork's
        remove_all()
        assert (tmp_path / "file").exists()
        monkeypatch.undo()


def test_removal_that_is_interrupted_is_completed_by_remove_all(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    def work():
        with partial_path(tmp_path / "folder"):
            (tmp_path / "folder").mkdir()
            monkeypatch.setattr("webpte.partial_files.shutil.rmtree", interrupted)

    with pytest.raises(KeyboardInterrupt):
        work()
    monkeypatch.undo()
    assert (tmp_path / "folder").exists()
    remove_all()
    assert not (tmp_path / "folder").exists()
    partial_files._paths.clear()


@pytest.mark.parametrize(("error", "remedy"), [
    (PermissionError(errno.EACCES, "Access is denied"), "close the program that uses it"),  # Windows, an open file
    (OSError(errno.ENOSPC, "No space left on device"), "Free some space"),
])  # fmt: skip
def test_output_file_that_cannot_be_moved_keeps_old_file_and_names_remedy(tmp_path, monkeypatch, error, remedy):
    def refuse(source, target):
        raise error

    target = tmp_path / "a.txt"
    target.write_text("before")
    monkeypatch.setattr(os, "replace", refuse)
    with raises(webpte.InputError, target, remedy, code="not_writable"), output_file(target) as temporary:
        Path(temporary).write_text("after", encoding="utf-8")
    assert target.read_text() == "before" and list(tmp_path.iterdir()) == [target]
