"""The files that make an exported program are those that its exporter imports: caches of exports stand on it."""

from __future__ import annotations

import pytest

from tests.support.export.exporter_files import EXPORT, exporter_files


def names(*modules: str) -> set[str]:
    return {path.relative_to(EXPORT).as_posix() for path in exporter_files(*modules)}


def test_exporter_files_of_language_model_are_its_imports():
    found = names("llm", "families/llama")
    assert {"llm.py", "lowering.py", "families/llama.py", "families/__init__.py", "quantization/grid.py"} < found
    assert {"modules/decoder.py", "modules/quantized.py", "gguf_tokenizer.py"} < found  # imported within functions
    assert not {"hub.py", "dispatch.py", "speech.py", "vision.py", "encoders.py", "families/gemma2.py"} & found


def test_tasks_are_made_by_their_own_files():
    assert {"sentence_transformers.py", "lowering.py"} < names("encoders") and "llm.py" not in names("encoders")
    assert {"pretrained.py", "lowering.py"} < names("vision") and "encoders.py" not in names("vision")
    assert {"speech.py", "quantization/quantize.py"} < names("speech") and "vision.py" not in names("speech")


def test_exporter_files_cover_all_but_dispatch_and_download():
    families = [f"families/{path.stem}" for path in (EXPORT / "families").glob("[!_]*.py")]
    every = {path.relative_to(EXPORT).as_posix() for path in EXPORT.rglob("*.py")}
    left = every - names("llm", "encoders", "vision", "speech", *families)
    assert left <= {
        "__init__.py",
        "modules/__init__.py",
        "dispatch.py",
        "hub.py",
        "hub_files.py",
    }


def test_exporter_files_missing_module_raises():
    with pytest.raises(FileNotFoundError):
        exporter_files("nothing")
