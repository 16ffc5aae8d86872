"""Recognise and read a checkpoint (GGUF, or safetensors with config.json); write its tokenizer files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ..container import ForeignFile, MappedFile, recognise
from ..errors import FormatError, InputError
from ..tools.evaluation.windows import TextTokens
from .family import Checkpoint


def check_source(path: Path) -> None:
    """Whether a checkpoint is there, told by its first bytes: importing torch takes seconds, reading one minutes."""
    if path.is_dir():
        _folder_of(path)
        return
    with MappedFile(path) as file:
        found = recognise(file)
    if path.suffix == ".gguf":
        if found is None or "GGUF" not in found.kind:
            instead = f" but {found.kind}" if found is not None else ""
            raise FormatError(f"{path} is not a GGUF file{instead}. Download or copy it again.")
        return
    if found is not None and "GGUF" in found.kind:
        raise InputError(f"{path} is a GGUF checkpoint: rename it to {path.stem}.gguf, by which it is told")
    if found is not None and found.kind.startswith("an ExecuTorch program"):
        raise InputError(f"{path} is a program already: webpte inspect {path} shows it, webpte generate talks to it")
    _folder_of(path, found)


def _folder_of(path: Path, found: ForeignFile | None = None) -> Path:
    """The folder of a checkpoint, which is named itself or by a file in it."""
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").exists():
        known = f" It is {found.kind}: {found.remedy}" if found is not None else ""
        raise FormatError(f"{path} is neither a .gguf file nor a folder with config.json and safetensors.{known}")
    return folder


def read_checkpoint(path: Path) -> Checkpoint:
    """A .gguf file, or a folder (or a file in it) with config.json and safetensors."""
    check_source(path)
    if path.suffix == ".gguf":
        from .gguf_file import read_gguf

        return read_gguf(path)
    from .hugging_face import read_folder

    return read_folder(_folder_of(path))


def write_tokenizer_files(source: Checkpoint, target: Path) -> None:
    """Beside a program."""
    texts = {"tokenizer.json": source.tokenizer, "chat_template.jinja": source.chat_template}
    config: dict[str, Any] = dict(source.special_tokens)
    if source.tool_format is not None:
        config["tool_format"] = source.tool_format.to_json()
    if config:
        texts["tokenizer_config.json"] = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    for name, text in texts.items():
        if text is not None:
            target.with_name(f"{target.stem}.{name}").write_text(text, encoding="utf-8")


def text_tokens(source: Checkpoint, text: str) -> TextTokens:
    """Return a text as the program of a checkpoint will read it."""
    from ..tools.evaluation.programs import tokens_beside

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.pte"
        write_tokenizer_files(source, target)
        return tokens_beside(target, text, source.bos_id, source.eos_ids)
