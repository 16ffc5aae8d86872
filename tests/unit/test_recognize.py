"""A file that is not a program is named by its kind, with the command that opens it."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ptd_file, simple_pte
from webpte.cli import main
from webpte.container import DType, VkInt, VkTensor, parse_tensors
from webpte.container.files import MappedFile

F32 = DType.FLOAT32


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"data")
    return file.getvalue()


def safetensors():
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(4)


ONNX = b"\x08\x08\x12\x07pytorch\x1a\x052.4.0:\x9c\x01"
FILES = {
    "m.gguf": (b"GGUF" + bytes(60), "got a GGUF checkpoint", "webpte export {path} -o m.pte"),
    "m.onnx": (ONNX, "got an ONNX model", "webpte.export.lower"),
    "model.safetensors": (safetensors(), "got a file of safetensors", "webpte export {folder}"),
    "m.pt": (zipped("m/data.pkl", "m/version"), "got an archive of PyTorch", "webpte.export.lower"),
    "m.pt2": (zipped("archive_format", "models/model.json"), "got an archive of PyTorch", "webpte.export.lower"),
    "m.pth": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + bytes(9), "got weights saved by torch.save", "lower"),
    "m.tflite": (b"\x1c\0\0\0TFL3" + bytes(30), "got a TensorFlow Lite model", "webpte.export.lower"),
    "page.pte": (b"\n <!DOCTYPE html><title>Sign in", "got a web page", "Download or copy it again"),
    "lfs.pte": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
        "got a Git LFS pointer",
        "git lfs pull",
    ),
    "error.pte": (b'{"error": "not found"}', "got JSON text", "repeat it"),
    "zeros.pte": (bytes(5000), "got a file of zeros", "Download or copy it again"),
    "m.npz": (zipped("x.npy"), "got a zip archive", "pass a .pte file"),
    "m.pte.gz": (b"\x1f\x8b\x08" + bytes(9), "got a gzip archive", "gunzip"),
    "tiny.pte": (b"ET", "expected 'ET' at byte 4, got b'ET'", "Download or copy it again"),
    "odd.onnx": (b"??????????", "It may be an ONNX model", "webpte.export.lower"),
    "odd.bin": (b"??????????", "It may be a file of weights", "webpte.export.lower"),
    "run.py": (
        b"import webpte\n\nprint(webpte.load('model.pte'))\n",
        "got a text file",
        "or a folder with config.json",
    ),
    "empty.pte": (b"", "is empty", "Download or copy it again"),
}


CODES = {"tiny.pte": "bad_magic", "odd.onnx": "bad_magic", "odd.bin": "bad_magic", "empty.pte": "empty_file"}


@pytest.mark.parametrize("name", FILES)
def test_recognize_names_file_type_and_remedy(name, tmp_path, capsys):
    content, kind, remedy = FILES[name]
    code = CODES.get(name, "wrong_file_type")
    path = tmp_path / name
    path.write_bytes(content)
    with raises(webpte.FormatError, path, kind, remedy.format(path=path, folder=tmp_path), code=code) as raised:
        webpte.load(path)
    message = str(raised.value)
    assert main(["inspect", str(path)]) == 1
    assert capsys.readouterr().err == f"FormatError: {message}\n"


@pytest.mark.parametrize("command", ["inspect", "check", "run", "bench", "tune", "compare", "profile"])
def test_command_on_checkpoint_shows_export_command(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").write_bytes(FILES["m.gguf"][0])
    assert main([command, "m.gguf"]) == 1
    assert "webpte export m.gguf -o m.pte" in capsys.readouterr().err


def test_recognize_folder_shows_remedy(tmp_path, capsys):
    for names, remedy in (
        (["config.json", "model.safetensors"], f"webpte export {tmp_path / 'f0'} -o f0.pte"),
        (["a.pte", "b.pte"], f"Name the program in it: {tmp_path / 'f1' / 'a.pte'}, {tmp_path / 'f1' / 'b.pte'}"),
        (["m.gguf"], f"webpte export {tmp_path / 'f2' / 'm.gguf'} -o m.pte"),
        ([], "an empty folder"),
        (["notes"], "a folder that webpte bundle wrote, or a checkpoint"),
    ):
        folder = tmp_path / f"f{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name in names:
            (folder / name).touch()
        with raises(webpte.FormatError, remedy, code="not_regular_file"):
            webpte.load(folder)


@pytest.fixture
def keyed(tmp_path):
    values = [VkTensor(F32, (7,)), VkTensor(F32, (7,), constant_id=0), VkInt(1), VkTensor(F32, (7,))]
    calls = [("aten.add.Tensor", (0, 1, 2, 3))]
    data = simple_pte(tmp_path / "p.pte", values, calls, [0], [3], [np.ones(7, np.float32)], where="external")
    ptd_file(tmp_path / "weights.ptd", data)
    return tmp_path / "p.pte"


def test_recognize_ptd_file_separate_from_program(keyed, capsys):
    data = keyed.with_name("weights.ptd")
    with raises(webpte.FormatError, ".ptd", f"--data {data}", code="wrong_file_type"):
        webpte.load(data)
    with MappedFile(keyed) as file, raises(webpte.FormatError, ".pte", "--data", code="wrong_file_type"):
        parse_tensors(file)
    assert main(["inspect", str(keyed), "--data", str(data)]) == 0


def test_constants_that_are_away_can_still_be_looked_at(keyed, capsys):
    assert main(["inspect", str(keyed)]) == 0
    shown = capsys.readouterr().out
    assert "f32[7]" in shown and "VulkanBackend" in shown and "forward: 1 constant without data" in shown
    assert f"add --data {keyed.with_name('weights.ptd')}." in shown
    assert main(["check", str(keyed)]) == 1
    assert f"add --data {keyed.with_name('weights.ptd')}." in capsys.readouterr().out
    assert main(["run", str(keyed)]) == 1
    assert "weights.ptd" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "message"), [
    ("modle.pte", "did you mean {0}/model.pte?"),
    ("model", "did you mean {0}/model.pte?"),
    ("nothing.pte", "{0} has model.pte"),
    ("sub/model.pte", "there is no folder {0}/sub"),
    ("x.gguf", "No such file"),
])  # fmt: skip
def test_recognize_missing_file_suggests_match(typed, message, tmp_path):
    (tmp_path / "model.pte").touch()
    with raises(webpte.FormatError, message.format(tmp_path), code="unreadable"):
        webpte.load(tmp_path / typed)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("m.pte", b"\0\0\0\0ET12" + bytes(40), "is already a program. Run webpte inspect"),
    ("m.bin", b"GGUF" + bytes(40), "Rename it to m.gguf"),
    ("m.gguf", b"<html>", "expected a GGUF file, got a web page"),
    ("m.gguf", b"????????", "expected a GGUF file, got unknown data"),
    ("m.onnx", ONNX, "got an ONNX model"),
])  # fmt: skip
def test_recognize_export_input_names_file_type(name, content, message, tmp_path, capsys):
    (tmp_path / name).write_bytes(content)
    assert main(["export", str(tmp_path / name), "-o", str(tmp_path / "out.pte")]) == 1
    assert message in capsys.readouterr().err
