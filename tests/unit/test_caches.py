"""Caches are text, checked when they are read: what others put there, cut or damaged is ignored, and nothing is run."""

from __future__ import annotations

import ast
import importlib
import logging
import os
import sys
from pathlib import Path

import platformdirs
import pytest

from webpte.folders import cache_folder, data_folder, state_folder
from webpte.lowering import registered
from webpte.runtime.tuning import read_tuning, tuning_cache_path, write_tuning
from webpte.wgsl import Caps, Kernel, Uniforms, home_of, render
from webpte.wgsl import kernel as kernel_module
from webpte.wgsl.kernel import LIB

SRC = Path(__file__).parents[2] / "src" / "webpte"
DANGEROUS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "bccache"}
EVALUATING = {"eval", "exec", "compile", "__import__"}


def names(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (part for alias in aliases for part in alias.name.split("."))
            case ast.ImportFrom(module=module, names=aliases):
                yield from [*(module or "").split("."), *(alias.name for alias in aliases)]
            case ast.Call(func=ast.Name(id=name)) if name in EVALUATING:
                yield name
            case ast.Attribute(attr=name) if name in {"FileSystemBytecodeCache", "allow_pickle", "literal_eval"}:
                yield name
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                yield "allow_pickle"


def test_caches_use_no_pickle_or_eval():
    results = {}
    for path in SRC.rglob("*.py"):
        bad = (DANGEROUS | EVALUATING | {"FileSystemBytecodeCache", "allow_pickle"}).intersection(
            names(ast.parse(path.read_text()))
        )
        if bad:
            results[str(path.relative_to(SRC))] = bad
    assert results == {}


FOLDERS = {"XDG_CACHE_HOME": cache_folder, "XDG_DATA_HOME": data_folder, "XDG_STATE_HOME": state_folder}
APPLE = ["Library/Caches/webpte", "Library/Application Support/webpte", "Library/Application Support/webpte"]


@pytest.mark.parametrize("name", FOLDERS)
def test_folder_xdg_set_is_used_on_any_platform(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, str(tmp_path))
    assert FOLDERS[name]() == tmp_path / "webpte"


@pytest.mark.parametrize(
    ("platform", "folders"),
    [("unix.Unix", [".cache/webpte", ".local/share/webpte", ".local/state/webpte"]), ("macos.MacOS", APPLE)],
)
def test_folder_unset_is_that_of_the_platform(tmp_path, monkeypatch, platform, folders):
    module, name = platform.split(".")
    for variable in FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(platformdirs, "PlatformDirs", getattr(importlib.import_module(f"platformdirs.{module}"), name))
    assert [folder() for folder in FOLDERS.values()] == [tmp_path / folder for folder in folders]


class _Params(Uniforms):
    """Just `threads`."""


@pytest.fixture
def kernel():
    op = registered()["aten.relu.default"]
    return Kernel(
        op.home, "create/fill.wgsl", (("type", "f32"), ("cast", "f32")), _Params.wgsl, 64, 0, 1, (("y", "read_write"),)
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel_module._cache_subfolder.cache_clear()
    yield tmp_path / "webpte" / "wgsl"
    kernel_module._cache_subfolder.cache_clear()


def kept(cache, text="fn main() {}\n" * 40):
    kernel_module.write_cached("a" * 64, text)
    (path,) = cache.iterdir()
    return path, text


def test_kernel_cache_stores_and_reads_text(cache):
    _, text = kept(cache)
    assert kernel_module.read_cached("a" * 64) == text
    assert cache.stat().st_mode & 0o777 == 0o700 or os.name != "posix"
    assert kernel_module.read_cached("b" * 64) is None


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "swapped"])
def test_kernel_cache_damaged_file_is_ignored(cache, damage):
    path, _ = kept(cache)
    data = path.read_bytes()
    changed = {
        "empty": b"",
        "cut": data[:100],
        "flipped": data[:-3] + b"\xff" + data[-2:],
        "swapped": data[:64] + b"@compute fn other() {}",
    }
    path.write_bytes(changed[damage])
    assert kernel_module.read_cached("a" * 64) is None


@pytest.mark.skipif(os.name != "posix", reason="owners and pipes are those of POSIX")
def test_pipes_folders_and_open_folders_are_not_looked_at(cache):
    path, text = kept(cache)
    path.unlink()
    os.mkfifo(path)
    assert kernel_module.read_cached("a" * 64) is None
    path.unlink()
    path.mkdir()
    assert kernel_module.read_cached("a" * 64) is None
    path.rmdir()
    kernel_module.write_cached("a" * 64, text)
    cache.chmod(0o777)
    kernel_module._cache_subfolder.cache_clear()
    assert kernel_module.read_cached("a" * 64) is None


def test_kernel_cache_too_many_files_is_cleared(cache, monkeypatch):
    kept(cache)
    monkeypatch.setattr(kernel_module, "MAX_CACHED_KERNELS", 0)
    kernel_module._cache_subfolder.cache_clear()
    assert kernel_module.read_cached("a" * 64) is None and not list(cache.iterdir())


def test_rendering_again_gives_the_text_that_was_kept(cache):
    kernels = [Kernel(home_of(LIB), "kernel.wgsl", (), _Params.wgsl, size, 0, 1) for size in (64, 32)]
    first = [render(kernel) for kernel in kernels]
    assert first[0] != first[1] and len(list(cache.iterdir())) == 2
    assert [render(kernel) for kernel in kernels] == first
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert [render(kernel) for kernel in kernels] == first


def test_kernel_cache_changed_template_renders_again(cache, tmp_path):
    for text in ("fn one() {}\n", "fn other() {}\n"):
        (tmp_path / "own.wgsl").write_text(text)
        assert render(Kernel(home_of(str(tmp_path)), "own.wgsl", (), _Params.wgsl, 64, 0, 1)) == text


WRONG = {
    "not json": b"{",
    "a list": b"[]",
    "nested lists": b"[" * 200_000,
    "nested tables": b'{"a":' * 100_000,
    "wrong types": b'{"a":5,"b":{"c":[1]}}',
    "binary": b"\xff\xfe\0",
    "null": b"null",
    "nan": b"NaN",
    "a long number": b"9" * 5000,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_choices_are_ignored_and_said_so(cache, name, caplog):
    tuning_cache_path().parent.mkdir(parents=True, exist_ok=True)
    tuning_cache_path().write_bytes(WRONG[name])
    with caplog.at_level(logging.WARNING, "webpte"):
        assert read_tuning(Caps()) == {}
    assert "is ignored" in caplog.text
    write_tuning(Caps(), {"job": "variant"})
    assert read_tuning(Caps()) == {"job": "variant"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes to put there")
def test_tuning_cache_pipe_or_huge_file_is_ignored(cache, caplog, monkeypatch):
    tuning_cache_path().parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tuning_cache_path())
    assert read_tuning(Caps()) == {} and "not a regular file" in caplog.text
    tuning_cache_path().unlink()
    tuning_cache_path().mkdir()
    assert read_tuning(Caps()) == {}
    tuning_cache_path().rmdir()
    with open(tuning_cache_path(), "wb") as file:
        file.truncate(1 << 30)
    assert read_tuning(Caps()) == {} and "more than" in caplog.text
