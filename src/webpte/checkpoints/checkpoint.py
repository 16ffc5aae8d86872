"""Recognize and read a checkpoint (GGUF, or safetensors with config.json); write its tokenizer files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..container import ForeignFile, MappedFile, recognize
from ..errors import FormatError, InputError, UnsupportedError
from ..json_files import read_json_object
from ..text import shell_word
from .family import Checkpoint
from .text_part import wrapper_classes

# Suffixes of transformers' class names in `architectures` of config.json -> the kind of model.
_CLASS_SUFFIXES = {
    "ForCausalLM": "language",
    # With an image encoder, which is left out unless towers/ has its kind.
    **dict.fromkeys(wrapper_classes(), "language"),
    "ForImageClassification": "image classifier",
    "ForObjectDetection": "detector",
    "WhisperForConditionalGeneration": "speech",
    "MoonshineForConditionalGeneration": "speech",
    "ForSequenceClassification": "reranker",
    "ForMaskedLM": "encoder",
    "Model": "encoder",
}


def check_source(path: Path) -> None:
    """Check by its first bytes that a path is a checkpoint. Importing torch takes seconds, and reading one minutes."""
    if path.is_dir():
        _folder_of(path)
        return
    with MappedFile(path) as file:
        kind = recognize(file)
    if path.suffix == ".gguf":
        if kind is None or "GGUF" not in kind.kind:
            raise FormatError(
                argument=str(path),
                expected="a GGUF file",
                got="unknown data" if kind is None else kind.kind,
                code="not_gguf",
                hint="Download or copy it again.",
            )
        return
    if kind is not None and "GGUF" in kind.kind:
        raise InputError(
            f"{path} is a GGUF checkpoint without the suffix .gguf",
            code="gguf_suffix",
            hint=f"Rename it to {path.stem}.gguf.",
        )
    if kind is not None and kind.kind.startswith("an ExecuTorch program"):
        raise InputError(
            f"{path} is already a program",
            code="already_program",
            hint=f"Run webpte inspect {shell_word(path)} or webpte generate {shell_word(path)}.",
        )
    _folder_of(path, kind)


def _folder_of(path: Path, kind: ForeignFile | None = None) -> Path:
    """Return the folder of a checkpoint: `path`, or the folder that has it."""
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").exists():
        raise FormatError(
            argument=str(path),
            expected="a .gguf file, or a folder with config.json and safetensors",
            got="neither" if kind is None else kind.kind,
            code="not_a_checkpoint",
            **({} if kind is None else {"hint": kind.remedy}),
        )
    return folder


def model_kind(source: str | os.PathLike[str]) -> str:
    """Return "language", "encoder", "reranker", "language reranker", "image classifier", "detector" or "speech"."""
    path = Path(source)
    check_source(path)
    if path.suffix == ".gguf":
        return "language"
    folder = path if path.is_dir() else path.parent
    if (folder / "modules.json").exists():  # of sentence-transformers: their transformer may be a language model
        from .sentence_transformers import read_answer_tokens

        return "encoder" if read_answer_tokens(folder) is None else "language reranker"

    names = read_json_object(folder / "config.json").get("architectures")
    for name in names if isinstance(names, list) else ():
        kind = next((kind for ending, kind in _CLASS_SUFFIXES.items() if str(name).endswith(ending)), None)
        if kind is None:
            raise UnsupportedError(
                items=["architectures"],
                argument=f"{folder / 'config.json'}: architectures",
                expected=f"a name that ends in {', '.join(_CLASS_SUFFIXES)}",
                got=name,
                code="unknown_architecture",
            )
        return kind
    return "language"  # older files have no architectures; their model_type is checked with the other fields


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a .gguf file, or a folder (or a file in it) with config.json and safetensors."""
    check_source(path)
    if path.suffix == ".gguf":
        from .gguf_file import read_gguf

        return read_gguf(path)
    from .hugging_face import read_folder

    return read_folder(_folder_of(path))


def write_tokenizer_files(source: Checkpoint, target: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json beside a program."""
    texts = {"tokenizer.json": source.tokenizer, "chat_template.jinja": source.chat_template}
    config: dict[str, Any] = dict(source.special_tokens)
    if source.tool_format is not None:
        config["tool_format"] = source.tool_format.to_json()
    if config:
        texts["tokenizer_config.json"] = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    if source.vision is not None:
        texts["preprocessor_config.json"] = json.dumps(dict(source.vision.processor), indent=2) + "\n"
    if source.generation_config:
        texts["generation_config.json"] = json.dumps(dict(source.generation_config), indent=2) + "\n"
    for name, text in texts.items():
        if text is not None:
            target.with_name(f"{target.stem}.{name}").write_text(text, encoding="utf-8")
