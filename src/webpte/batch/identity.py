"""What a model is known by: a hash of every file that decides what it gives, whatever the files are called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..container.near import alike
from ..errors import InputError
from ..llm.metadata import beside
from ..tasks import task_path

COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
PIECE = 1 << 20  # bytes read at a time


def model_fingerprint(path: Path) -> str:
    """Of a program with the files beside it, or of a bundle with all its files."""
    if not path.exists():
        raise InputError(f"there is no model {path}{alike(str(path))}")
    if path.is_dir():
        names = {str(file.relative_to(path)): file for file in sorted(path.rglob("*")) if file.is_file()}
    else:
        found = {name: beside(path, name) for name in COMPANIONS}
        task = task_path(path)
        names = {"program": path} | {name: file for name, file in found.items() if file is not None}
        names |= {"task": task} if task.exists() else {}
    digest = hashlib.sha256()
    for name, file in names.items():
        digest.update(f"{name} {file_digest(file)}\n".encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return digest.hexdigest()


def job_digest(fields: Mapping[str, Any]) -> str:
    """One name for a model with its settings."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
