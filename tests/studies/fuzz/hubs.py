"""Listings of a hub that are changed, fetched as an export fetches them. No network is used."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from tests.studies.fuzz.changes import STRANGE, changed_bytes, changed_json
from webpte.checkpoints import hub_files, hub_listing
from webpte.checkpoints.hub import fetch
from webpte.progress import ignore

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = ["", "/", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "./x", "a\\b", "C:x", "a\0b", "x" * 600, "\ud800"]
INDEX = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
MODULES = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
FILES = {
    "config.json": b'{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}',
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "m-1.safetensors": b"1" * 100,
    "m-2.safetensors": b"2" * 100,
    "tokenizer.json": b"{}",
}


def _sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def listing(files: dict[str, bytes]) -> str:
    """Return a listing in the form of the hub's API."""
    siblings = [{"rfilename": name, "size": len(data), "blobId": _sha1(data)} for name, data in files.items()]
    large = {"sha256": hashlib.sha256(files["m-1.safetensors"]).hexdigest(), "size": 100, "pointerSize": 134}
    siblings[2]["lfs"] = large
    return json.dumps({"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "siblings": siblings})


def _mutant(files: dict[str, bytes], random: Random) -> str:
    text = listing(files)
    if random.random() < 0.3:
        document = json.loads(text)
        entry: dict[str, Any] = random.choice(document["siblings"])
        entry[random.choice(["rfilename", "rfilename", "size", "blobId", "lfs"])] = random.choice([*NAMES, *STRANGE])
        return json.dumps(document)
    return changed_json(text, random)


def _changed_files(random: Random) -> dict[str, bytes]:
    files = dict(FILES)
    if random.random() < 0.3:
        del files["model.safetensors.index.json"]
        files["modules.json"] = json.dumps(MODULES).encode()
        files["model.safetensors"] = b"3" * 100
    if random.random() < 0.4:
        name = random.choice([name for name in files if name.endswith(".json")])
        readable, data = random.random() < 0.7, files[name]
        files[name] = changed_json(data.decode(), random).encode() if readable else changed_bytes(data, random)
    return files


@functools.cache
def root() -> Path:
    """Return a folder of this process and those it forks."""
    folder = Path(tempfile.mkdtemp(prefix="webpte-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run_hub(random: Random) -> None:
    """Answer with a changed listing, and every file by its name with the bytes that it has."""
    from huggingface_hub import constants

    files = _changed_files(random)
    text = _mutant(files, random) if random.random() < 0.8 else listing(files)
    cache = root() / f"hub-{os.getpid()}" / "cache"
    cache.parent.mkdir(exist_ok=True)

    def download(url: str, partial: Path, *options: Any) -> None:
        partial.write_bytes(files.get(url.rpartition(f"/{COMMIT}/")[2], b"another file"))

    with (
        mock.patch.object(constants, "HF_HUB_CACHE", str(cache)),
        mock.patch.object(hub_listing, "_request", lambda name: text.encode()),
        mock.patch.object(hub_files, "resume_download", download),
    ):
        try:
            fetch("hf:org/tiny", ignore, lambda folder: None)
        finally:
            outside = {*cache.parent.iterdir()} - {cache}
            assert not outside, f"written outside of the cache: {outside}"
            shutil.rmtree(cache, ignore_errors=True)
