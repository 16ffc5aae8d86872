"""Names of models that a user may pass, and the programs that are built from checkpoints."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import webpte
import webpte.builder
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte.builder import programs
from webpte.cli import main, models
from webpte.cli.programs import open_models, open_source
from webpte.container import DType, VkTensor
from webpte.errors import HubError, InputError
from webpte.folders import cache_folder, chat_history_path
from webpte.llm import LLM
from webpte.progress import ignore
from webpte.runtime.manifest import MANIFEST
from webpte.runtime.tuning import tuning_cache_path
from webpte.sources import SHORT_NAMES, is_checkpoint, resolve_program

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


class Builder:
    """A builder that writes the checkpoint's name, and counts its calls."""

    def __init__(self) -> None:
        self.calls: list[Path] = []

    def __call__(self, checkpoint, path, *, progress, **options):
        self.calls.append(checkpoint)
        path.write_bytes(b"program of " + checkpoint.name.encode())
        path.with_name(f"{path.stem}.tokenizer.json").write_text("{}")


@pytest.fixture
def builder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    result = Builder()
    monkeypatch.setattr(webpte.builder, "build_program", result, raising=False)
    return result


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(bytes(100))
    return folder


def test_is_checkpoint_of_paths_and_names(tmp_path, checkpoint):
    (tmp_path / "smollm2").mkdir()  # a folder of custom
    for source in ("model.gguf", "hf:org/name", "smollm2", "qwen3", checkpoint, str(checkpoint)):
        assert is_checkpoint(source), source
    for source in ("model.pte", tmp_path, tmp_path / "smollm2", "unknown", b"bytes", 3, "folder/smollm2"):
        assert not is_checkpoint(source), source


def test_resolve_program_returns_other_sources_as_they_are(tmp_path):
    assert resolve_program("model.pte") == "model.pte"
    assert resolve_program(b"data") == b"data"


def test_resolve_program_builds_once_and_after_change(builder, checkpoint):
    first = resolve_program(checkpoint)
    assert first.read_bytes() == b"program of tiny" and first.name == "tiny.pte"
    assert resolve_program(str(checkpoint)) == first and len(builder.calls) == 1
    (checkpoint / "model.safetensors").write_bytes(bytes(101))
    assert resolve_program(checkpoint) != first and len(builder.calls) == 2
    assert [program.source for program in programs.list_programs()] == [str(checkpoint)] * 2


def test_resolve_program_failing_build_leaves_nothing(builder, checkpoint, monkeypatch):
    def failing(checkpoint, path, **options):
        path.write_bytes(b"a part")
        raise webpte.UnsupportedError("another family")

    monkeypatch.setattr(webpte.builder, "build_program", failing, raising=False)
    with pytest.raises(webpte.UnsupportedError):
        resolve_program(checkpoint)
    assert not list(programs.programs_folder().iterdir()) and not programs.list_programs()


def test_resolve_program_built_by_other_process_is_used(builder, checkpoint, monkeypatch):
    def slower(path_of_checkpoint, path, **options):
        final = path.parent.with_name(path.parent.name[1:].rpartition(".")[0].rpartition(".")[0])
        final.mkdir()
        (final / path.name).write_bytes(b"of another process")
        path.write_bytes(b"ours")

    monkeypatch.setattr(webpte.builder, "build_program", slower, raising=False)
    assert resolve_program(checkpoint).read_bytes() == b"of another process"
    assert len(list(programs.programs_folder().iterdir())) == 1


def test_models_remove_takes_programs_by_source_or_all(builder, checkpoint, capsys, monkeypatch):
    monkeypatch.setattr(models, "list_downloads", list)
    path = resolve_program(checkpoint)
    with raises(webpte.InputError, code="unknown_model"):
        models.run(argparse.Namespace(action="remove", names=["another"], all=False, json=True))
    assert main(["models", "remove", str(checkpoint), "--json"]) == 0
    assert [model["path"] for model in json.loads(capsys.readouterr().out)] == [str(path)]
    assert not path.exists() and not programs.list_programs()
    resolve_program(checkpoint)
    assert main(["models", "remove", "--all"]) == 0 and not programs.programs_folder().exists()


def stored(capsys, *arguments):
    """Return what `webpte files` lists or removes, by name."""
    assert main(["files", *arguments, "--json"]) == 0
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)}


def test_files_remove_all_keeps_only_checkpoints_of_the_user(builder, checkpoint, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("webpte.cli.files.list_downloads", list)
    for name in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    assert stored(capsys) == {}
    resolve_program(checkpoint)
    copied = programs.models_folder() / "SmolLM2-135M-Instruct" / "config.json"
    for path in (copied, chat_history_path(), tuning_cache_path(), cache_folder() / "wgsl" / "kernel"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0123456789")
    listed = stored(capsys)
    assert listed.keys() == {"programs", "kernels", "tuning", "hashes", "history", "checkpoints"}
    assert listed["history"]["bytes"] == listed["checkpoints"]["bytes"] == 10 < listed["programs"]["bytes"]
    assert stored(capsys, "remove", "history").keys() == {"history"} and not chat_history_path().exists()
    assert main(["files"]) == 0 and str(programs.models_folder()) in capsys.readouterr().out
    assert stored(capsys, "remove", "--all").keys() == {"programs", "kernels", "tuning", "hashes"}
    assert stored(capsys).keys() == {"checkpoints"} and not list((tmp_path / "CACHE" / "webpte").iterdir())


def test_models_folder_is_not_in_the_cache():
    """The documents say that the cache may be deleted."""
    assert cache_folder() not in programs.models_folder().parents


def test_resolve_program_short_name_finds_copied_checkpoint(builder, monkeypatch):
    file = programs.models_folder() / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF\x03\0\0\0" + bytes(100))
    for encoder in ("SmolLM2-135M-Instruct-mmproj.gguf", "SmolLM2-135M-Instruct.MMPROJ-F16.gguf"):  # sorted first
        file.with_name(encoder).write_bytes(file.read_bytes())
    assert resolve_program("smollm2").read_bytes() == b"program of SmolLM2-135M-Instruct.Q4_1.gguf"


def test_resolve_program_offline_states_download_and_folder(builder, monkeypatch):
    def offline(*arguments):
        raise HubError("no network", "offline")

    monkeypatch.setattr(programs, "fetch", offline)
    with raises(webpte.InputError, code="no_checkpoint") as caught:
        resolve_program("smollm2")
    message = str(caught.value)
    assert SHORT_NAMES["smollm2"].removeprefix("hf:") in message and str(programs.models_folder()) in message


def test_models_of_a_server_keep_their_names(builder, checkpoint):
    path = resolve_program(checkpoint)
    assert open_models(["a.pte", f"b={checkpoint}", str(checkpoint)]) == ("a.pte", f"b={path}", f"tiny={path}")


def test_models_of_a_folder_are_its_programs_bundles_and_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr("webpte.cli.programs.open_source", lambda name, *_: f"{Path(name).name}.built.pte")
    (tmp_path / "b.pte").touch()
    (tmp_path / "b.tokenizer.json").touch()
    (tmp_path / "talker.gguf").touch()
    for folder, file in (("site", MANIFEST), ("tiny", "config.json"), ("other", "notes.txt")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).touch()
    monkeypatch.setattr("webpte.cli.programs.check_servable", lambda path: None)
    built = {"talker": "talker.gguf.built.pte", "tiny": "tiny.built.pte"}
    expected = {"b": tmp_path / "b.pte", "site": tmp_path / "site", **built}
    assert open_models([str(tmp_path)]) == tuple(f"{name}={path}" for name, path in expected.items())
    (tmp_path / "b.gguf").touch()
    names = [model.partition("=")[0] for model in open_models([str(tmp_path)])]
    assert names == ["b.gguf", "b.pte", "site", "talker", "tiny"]
    with raises(InputError, str(tmp_path / "other"), code="empty_folder"):
        open_models([str(tmp_path / "other")])


def test_models_of_a_folder_that_cannot_be_served_are_left_out_with_the_reason(tmp_path, capsys):
    """A CNN was listed as a language model, and was the default of the chat page if it was the first by name."""
    values = [VkTensor(DType.FLOAT32, (7,)), VkTensor(DType.FLOAT32, (7,))]
    simple_pte(tmp_path / "cnn.pte", values, [("aten.relu.default", (0, 1))], [0], [1], [])
    simple_pte(tmp_path / "labels.pte", values, [("aten.relu.default", (0, 1))], [0], [1], [])
    (tmp_path / "labels.task.json").write_text('{"task": "image classification"}')
    (tmp_path / "encoder.pte").touch()
    (tmp_path / "encoder.task.json").write_text('{"task": "embedding"}')
    (tmp_path / "cut.pte").write_bytes(b"cut")
    assert open_models([str(tmp_path)]) == (f"encoder={tmp_path / 'encoder.pte'}",)
    cnn, cut, labels = capsys.readouterr().err.strip().splitlines()
    assert cnn.startswith(f"not served: {tmp_path / 'cnn.pte'}: ") and "webpte run" in cnn and "forward(" in cnn
    assert cut.startswith("not served: ") and "image classification" in labels
    (tmp_path / "encoder.pte").unlink()
    with raises(InputError, tmp_path, code="empty_folder"):
        open_models([str(tmp_path)])


@pytest.mark.parametrize("load", [LLM, lambda name: open_source(name, ignore), lambda name: open_models([name])])
@pytest.mark.parametrize(
    ("name", "hint"), [("gpt2", "hf:org/name"), ("smolm2", "Did you mean smollm2?"), ("org/name", "hf:org/name?")]
)
def test_unknown_name_is_refused_with_the_known_ones(load, name, hint):
    with raises(webpte.InputError, *SHORT_NAMES, hint, code="unknown_model"):
        load(name)


@pytest.mark.parametrize("name", ["none.pte", "none.gguf", "/none", "./a/b/c"])
def test_path_of_a_missing_file_is_no_unknown_name(name):
    with raises(webpte.FormatError, name, code="unreadable"):
        LLM(name)


def test_llm_of_another_program_states_what_it_computes(tmp_path):
    values = [VkTensor(DType.FLOAT32, (4, 16)) for _ in range(2)]
    simple_pte(tmp_path / "relu.pte", values, [("aten.relu.default", (0, 1))], [0], [1])
    with raises(webpte.InputError, "f32[4, 16]", "webpte run", code="not_a_language_model"):
        LLM(tmp_path / "relu.pte")
    (tmp_path / "relu.task.json").write_text('{"task": "embedding"}')
    with raises(webpte.InputError, "f32[4, 16]", "webpte.embed", code="not_a_language_model"):
        LLM(tmp_path / "relu.pte")


def test_resolve_program_encoder_names_export_command(builder, checkpoint):
    (checkpoint / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    with raises(webpte.InputError, code="model_kind"):
        resolve_program(checkpoint)
