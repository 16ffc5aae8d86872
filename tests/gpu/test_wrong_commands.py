"""Wrong command lines: each is refused within a second, by a message that names what is wrong and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.harness.children import ROOT
from tests.support.harness.writer import ptd_file, simple_pte
from tests.support.harness.wrong_calls import Wrong, check
from webpte.container import DType, VkInt, VkTensor

F32 = DType.FLOAT32
PROGRAM_COMMANDS = ("inspect", "check", "run", "bench", "tune", "compare", "profile", "eval")
DEMO = str(ROOT / "docs" / "demo" / "model.pte")


def _wrong(line: str, argument: str) -> Wrong:
    return Wrong(tuple(DEMO if word == "DEMO" else word for word in line.split(" ")), argument)


def _everywhere() -> list[Wrong]:
    """The same mistakes with each command that opens a program."""
    results = []
    for command in PROGRAM_COMMANDS:
        results += [
            _wrong(command, "file"),
            _wrong(f"{command} modle.pte", "modle.pte"),
            _wrong(f"{command} m.gguf", "m.gguf"),
            _wrong(f"{command} weights.ptd", "weights.ptd"),
            _wrong(f"{command} page.pte", "page.pte"),
            _wrong(f"{command} cut.pte", "cut.pte"),
            _wrong(f"{command} model.pte --data", "--data"),
            _wrong(f"{command} model.pte --data none.ptd", "none.ptd"),
            _wrong(f"{command} model.pte --nonsense", "--nonsense"),
            _wrong(f"{command} model.pte extra.pte", "extra.pte"),
        ]
    return results


LINES = [
    ("inspct model.pte", "inspct"),
    ("model.pte", "model.pte"),
    ("--verson", "COMMAND"),
    ("inspect model.pte --html no/x.html", "--html"),
    ("inspect model.pte --html folder", "--html"),
    ("inspect model.pte --dot no/x.dot", "--dot"),
    ("inspect model.pte --html x.html --method forwrd", "forwrd"),
    ("inspect model.pte --dot x.dot --method nobody", "nobody"),
    ("inspect folder", "folder"),
    ("check model.pte --limits nonsense", "nonsense"),
    ("check model.pte --limits max-warp-size=3", "max-warp-size"),
    ("check model.pte --limits max-buffer-size=-1", "max-buffer-size"),
    ("check model.pte --limits browser --adapter", "--adapter"),
    ("check model.pte --data model.pte", "model.pte"),
    ("run model.pte --repeat -1", "--repeat"),
    ("run model.pte --repeat many", "--repeat"),
    ("run model.pte --repeat 1.5", "--repeat"),
    ("run model.pte --seed -3", "--seed"),
    ("run model.pte --seed x", "--seed"),
    ("run model.pte --method forwrd", "forwrd"),
    ("run model.pte --fallback gpu", "--fallback"),
    ("run model.pte --save out.txt", "--save"),
    ("run model.pte --save no/out.npz", "--save"),
    ("run model.pte --save folder", "--save"),
    ("run model.pte --input x.npy", "--input"),
    ("run model.pte --input x.npz", "--input"),
    ("run model.pte --input photo.png", "--input"),
    ("run model.pte --input nonsense", "--input"),
    ("run model.pte --input 7x:random", "--input"),
    ("run model.pte --input 7:rnd", "--input"),
    ("run model.pte --input 9=7:ones", "--input"),
    ("run model.pte --input nobody=7:ones", "nobody"),
    ("run model.pte --input 7:ones --input 7:ones", "--input"),
    ("run model.pte --input 8:ones", "input 0"),
    ("run model.pte --input 7x7:ones", "input 0"),
    ("run model.pte --input text.npy", "input 0"),
    ("run model.pte --inptu 7:ones", "--inptu"),
    ("run folder", "folder"),
    ("run model.pte --data model.pte", "model.pte"),
    ("bench model.pte --seconds 0", "--seconds"),
    ("bench model.pte --seconds -1", "--seconds"),
    ("bench model.pte --seconds nan", "--seconds"),
    ("bench model.pte --seconds soon", "--seconds"),
    ("bench model.pte --method forwrd", "forwrd"),
    ("bench model.pte --plot x.txt", "--plot"),
    ("bench model.pte --plot no/x.png", "--plot"),
    ("tune model.pte --seconds 0", "--seconds"),
    ("tune model.pte --seconds inf", "--seconds"),
    ("tune model.pte --force yes", "yes"),
    ("compare model.pte --rtol -1", "--rtol"),
    ("compare model.pte --rtol nan", "--rtol"),
    ("compare model.pte --atol close", "--atol"),
    ("compare model.pte --method forwrd", "forwrd"),
    ("compare model.pte --state none.bin", "--state"),
    ("compare model.pte --against none.pte", "--against"),
    ("compare model.pte --against page.pte", "page.pte"),
    ("compare model.pte --repro no/folder", "--repro"),
    ("compare model.pte --repro page.pte", "--repro"),
    ("compare model.pte --input nonsense", "--input"),
    ("compare model.pte --input 7:ones --then --input x.npy", "--input"),
    ("compare model.pte --seed -1", "--seed"),
    ("profile model.pte --repeat 0", "--repeat"),
    ("profile model.pte --trace x.txt", "--trace"),
    ("profile model.pte --trace no/x.json", "--trace"),
    ("profile model.pte --method forwrd", "forwrd"),
    ("profile model.pte --input x.npy", "--input"),
    ("profile model.pte --fallback no", "--fallback"),
    ("doctor now", "now"),
    ("doctor --jsn", "--jsn"),
    ("export", "file"),
    ("export m.gguf", "-o"),
    ("export none.gguf -o x.pte", "none.gguf"),
    ("export m.gguf -o no/x.pte", "no/x.pte"),
    ("export hf: -o x.pte", "hf:"),
    ("export hf:a/b/c.bin -o x.pte", "c.bin"),
    ("export hf:a/b@ -o x.pte", "hf:a/b@"),
    ("export hf:a/b -o no/x.pte", "no/x.pte"),
    ("export m.gguf -o folder", "folder"),
    ("export m.gguf -o x.pte --quantize 3w", "--quantize"),
    ("export m.gguf -o x.pte --quantize 4w --group-size 0", "group_size"),
    ("export m.gguf -o x.pte --quantize 4w --group-size 1", "group_size"),
    ("export m.gguf -o x.pte --group-size -7", "--group-size"),
    ("export m.gguf -o x.pte --group-size seven", "--group-size"),
    ("export m.gguf -o x.pte --embedding 4", "embedding"),
    ("export m.gguf -o x.pte --embedding 8,32", "embedding"),
    ("export m.gguf -o x.pte --embedding 4,7", "embedding"),
    ("export m.gguf -o x.pte --embedding 4,x", "embedding"),
    ("export m.gguf -o x.pte --max-context 1", "--max-context"),
    ("export m.gguf -o x.pte --max-prefill 0", "--max-prefill"),
    ("export m.gguf -o x.pte --max-context 1024 --max-prefill 2000", "max_tokens"),
    ("export m.gguf -o x.pte --quality yes", "yes"),
    ("export model.pte -o x.pte", "model.pte"),
    ("export page.pte -o x.pte", "page.pte"),
    ("export folder -o x.pte", "folder"),
    ("bundle", "-o"),
    ("bundle -o site", "--check"),
    ("bundle model.pte", "-o"),
    ("bundle none.pte -o site", "none.pte"),
    ("bundle m.gguf -o site", "m.gguf"),
    ("bundle model.pte -o no/site", "--output"),
    ("bundle model.pte -o page.pte", "--output"),
    ("bundle model.pte -o site --sequences 0", "--sequences"),
    ("bundle model.pte -o site --sequences few", "--sequences"),
    ("bundle model.pte -o site --labels none.txt", "--labels"),
    ("bundle model.pte -o site --tokenizer none.json", "--tokenizer"),
    ("bundle model.pte -o site --mean a,b", "--mean"),
    ("bundle model.pte -o site --std 1,,1", "--std"),
    ("bundle model.pte -o site --shapes 7x", "7x"),
    ("bundle model.pte -o site --shapes nobody:7", "nobody"),
    ("bundle model.pte -o site --check --data weights.ptd", "--data"),
    ("eval DEMO --tokens 1", "--tokens"),
    ("eval DEMO --tokens many", "--tokens"),
    ("eval DEMO --text none.txt", "--text"),
    ("eval DEMO --text folder", "--text"),
    ("eval DEMO --text empty.txt", "--text"),
    ("eval DEMO --text text.npy", "--text"),
    ("eval DEMO --against none.pte", "--against"),
    ("eval DEMO --against page.pte", "page.pte"),
    ("eval DEMO --against model.pte", "model.pte"),
    ("eval DEMO --tokenizer none.json", "none.json"),
    ("eval model.pte", "model.pte"),
    ("models clear", "clear"),
    ("models list smollm2", "NAME"),
    ("models remove", "NAME"),
    ("models remove nothing", "nothing"),
    ("files clear", "clear"),
    ("files list kernels", "NAME"),
    ("files remove", "NAME"),
    ("files remove nothing", "nothing"),
    ("files remove checkpoints", "checkpoints"),
    ("chat smolm2", "smolm2"),
    ("completion", "SHELL"),
    ("completion tcsh", "SHELL"),
]
TABLE = [*_everywhere(), *(_wrong(*line) for line in LINES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, device):
    """Return a program and files that are none, in a folder of their own."""
    folder = tmp_path_factory.mktemp("wrong")
    values = [VkTensor(F32, (7,)), VkTensor(F32, (7,), constant_id=0), VkInt(1), VkTensor(F32, (7,))]
    calls = [("aten.add.Tensor", (0, 1, 2, 3))]
    simple_pte(folder / "model.pte", values, calls, [0], [3], [np.ones(7, np.float32)])
    ptd_file(folder / "weights.ptd", {"w": np.ones(7, np.float32)})
    (folder / "m.gguf").write_bytes(b"GGUF" + bytes(60))
    (folder / "page.pte").write_text("<!doctype html>")
    (folder / "cut.pte").write_bytes(Path(DEMO).read_bytes()[:5000])
    np.save(folder / "text.npy", np.array(["a", "b"]))
    (folder / "empty.txt").touch()
    (folder / "folder").mkdir()
    return folder


def test_wrong_commands_table_is_long_and_distinct():
    assert len(TABLE) >= 120 and len({wrong.call for wrong in TABLE}) == len(TABLE)


@pytest.mark.parametrize("wrong", TABLE, ids=str)
def test_wrong_command_line_error_names_problem(wrong, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    check(wrong)
    assert sorted(os.listdir(folder)) == before, "a refused command leaves nothing behind"
