"""The files that make an exported program are those that its exporter imports: caches of exports stand on it."""

from __future__ import annotations

import pytest

from tests.support.export.exporter_files import SRC, exporter_files


def names(*modules: str) -> set[str]:
    return {path.relative_to(SRC).as_posix() for path in exporter_files(*modules)}


def test_exporter_files_of_language_model_are_its_imports():
    result = names("builder/llm", "checkpoints/families/llama")
    families = {"checkpoints/families/llama.py", "checkpoints/families/__init__.py"}
    assert {"builder/llm.py", "builder/decoder.py", "builder/quantize.py", *families} < result
    assert {"builder/calibration.py", "checkpoints/gguf_tokenizer.py"} < result  # imported within functions
    assert not {"checkpoints/hub.py", "builder/programs.py"} & result
    assert not any(name.startswith("export/") for name in result)
    assert "checkpoints/families/gemma2.py" not in result


def test_exporter_files_of_tasks_are_their_own():
    encoders, vision, speech = names("export/encoders"), names("export/vision"), names("builder/speech")
    assert {"checkpoints/sentence_transformers.py", "export/lowering.py"} < encoders
    assert "builder/llm.py" not in encoders
    assert {"export/pretrained.py", "export/lowering.py"} < vision and "export/encoders.py" not in vision
    assert "checkpoints/whisper.py" in speech and "export/lowering.py" not in speech


def test_exporter_files_missing_module_raises():
    with pytest.raises(FileNotFoundError):
        exporter_files("nothing")
