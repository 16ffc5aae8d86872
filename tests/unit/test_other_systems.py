"""What Windows and macOS do differently in webpte's own code, as far as Linux can show it."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import webpte
from tests.support.harness.errors import raises
from webpte import text
from webpte.batch.output import remove_stale_blocks
from webpte.builder import programs
from webpte.checkpoints.downloads import Download
from webpte.cli import generate
from webpte.cli import programs as cli_programs
from webpte.container import MappedFile
from webpte.host_memory import free_memory
from webpte.serve import processes, running
from webpte.serve.config import Config, load_config
from webpte.serve.worker_process import WorkerProcess
from webpte.sources import is_remote

BOM = b"\xef\xbb\xbf"  # which editors of Windows write


@pytest.mark.parametrize(
    ("system", "path", "expected"),
    [
        ("posix", "model.pte", "model.pte"),
        ("posix", "my models/a.pte", "'my models/a.pte'"),
        ("posix", "it's.pte", "'it'\"'\"'s.pte'"),
        ("nt", r"C:\models\a.pte", r"C:\models\a.pte"),
        ("nt", r"C:\my models\a.pte", r'"C:\my models\a.pte"'),
    ],
)
def test_shell_word_quotes_for_the_shells_of_the_system(monkeypatch, system, path, expected):
    monkeypatch.setattr(text, "os", SimpleNamespace(name=system))
    assert text.shell_word(path) == expected


def test_remedy_for_a_folder_with_a_space_is_a_command_that_runs(tmp_path):
    folder = tmp_path / "my checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    with raises(webpte.FormatError, f"webpte export '{folder}' -o 'my checkpoint.pte'", code="not_regular_file"):
        MappedFile(folder)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("models/tiny", "tiny"),
        ("models/tiny/", "tiny"),
        ("models/tiny.gguf", "tiny"),
        ("hf:org/name", "name"),
        ("hf:org/name@refs/pr/1", "name"),
        ("hf:org/name/other.gguf@main", "other"),
        ("https://host/a@b/tiny.pte#sha256=00", "tiny"),
    ],
)
def test_model_of_a_server_is_named_by_the_last_part_of_its_path(monkeypatch, source, name):
    monkeypatch.setattr(cli_programs, "open_source", lambda *arguments: "built.pte")
    monkeypatch.setattr(cli_programs, "is_checkpoint", lambda source: not is_remote(source))
    assert cli_programs.open_models([source]) == (f"{name}=built.pte",)


def test_prompt_of_a_pipe_with_line_ends_of_windows_has_none(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BOM + b"Hello\r\nthere\r\n"), encoding="utf-8"))
    assert generate.read_stdin() == "Hello\nthere\n"


def test_files_with_a_byte_order_mark_are_read_without_it(tmp_path):
    keys, config, prompts = (tmp_path / name for name in ("keys", "server.toml", "prompts.jsonl"))
    keys.write_bytes(BOM + b"secret\r\n")
    config.write_bytes(BOM + b'models = ["a.pte"]\r\nport = 9000\r\n')
    prompts.write_bytes(BOM + b'{"prompt": "a"}\r\n"b"\r\n')
    assert Config(api_key_file=str(keys)).with_key_file().api_keys == ("secret",)
    assert load_config({}, {}, str(config)).config.port == 9000
    assert len(generate.read_prompts(str(prompts))) == 2


class Stderr:
    """The log of a child, in pieces as they arrive."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self, count: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def test_log_of_a_worker_with_line_ends_of_windows_has_whole_lines(caplog):
    child: Any = SimpleNamespace(pid=7, stderr=Stderr(b"caf\xc3", b"\xa9\r\nsecond\r\n", b"caf\xe9"))
    process = WorkerProcess(child)
    asyncio.run(process._forward_log())
    assert [record.getMessage() for record in caplog.records] == [
        f"worker 7: {line}" for line in ("café", "second", "caf\ufffd")
    ]


def test_end_now_without_sigkill_ends_the_workers(monkeypatch):
    ended: list[tuple[int, int]] = []
    monkeypatch.delattr(signal, "SIGKILL")
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
    monkeypatch.setattr(os, "_exit", lambda code: None)
    service: Any = SimpleNamespace(backend=SimpleNamespace(worker_pids=[5, 7]))
    running.end_now(service, signal.SIGTERM)
    assert ended == [(5, signal.SIGTERM), (7, signal.SIGTERM)]


def test_system_without_proc_and_resource_reports_no_memory(monkeypatch):
    def missing(*arguments, **options):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert free_memory() is None
    processes.limit_memory(1)
    assert running.raise_file_limit(5) == 5


@pytest.mark.parametrize("remove", ["download", "program", "block"])
def test_file_in_use_that_cannot_be_removed_names_the_remedy(tmp_path, monkeypatch, remove):
    """As Windows refuses it: a program has the file open."""

    def refuse(*arguments, **options):
        raise PermissionError(13, "Access is denied", str(tmp_path / "model.pte"))

    def run() -> None:
        if remove == "download":
            Download("hf:org/name", tmp_path, 1, (), 0.0).remove()
        elif remove == "program":
            programs.remove_programs([programs.CachedProgram(tmp_path / "model.pte", "a", "a", 1, 0.0, 0.0)])
        else:
            remove_stale_blocks(tmp_path, ())

    (tmp_path / ".a.tmp").write_text("")
    monkeypatch.setattr("shutil.rmtree", refuse)
    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with raises(webpte.InputError, tmp_path / "model.pte", "close the program that uses it", code="not_removable"):
        run()
    monkeypatch.undo()
