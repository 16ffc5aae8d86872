"""Bundles with a changed manifest, plan, kernel or weights under correct hashes, read as far as no device is needed."""

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

import numpy as np

import webpte
from tests.studies.fuzz.changes import changed_bytes, changed_json
from tests.support.harness.writer import simple_pte
from webpte.bundles.methods import TARGETS
from webpte.container import DType, VkInt, VkTensor
from webpte.runtime import Bundle
from webpte.runtime.manifest import SUFFIXES


@functools.cache
def honest_bundle() -> Path:
    """y = x + table."""
    folder = Path(tempfile.mkdtemp(prefix="webpte-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    row = VkTensor(DType.FLOAT32, (5, 7))
    values = [row, VkTensor(DType.FLOAT32, (5, 7), constant_id=0), VkInt(1), row]
    table = np.arange(35, dtype=np.float32).reshape(5, 7)
    simple_pte(folder / "add.pte", values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [table])
    with webpte.load(folder / "add.pte") as program:
        webpte.bundle(program, folder / "site")
    return folder / "site"


def document_of(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "manifest.json").read_text())
    del document["sha256"]
    return document


def write_manifest(folder: Path, text: str) -> None:
    """A manifest of this text, under the right hash."""
    body = text.encode("ascii")[1:]
    (folder / "manifest.json").write_bytes(b'{"sha256":"%s",' % hashlib.sha256(body).hexdigest().encode() + body)


def replace_file(folder: Path, document: dict[str, Any], old: str, data: bytes) -> None:
    """Another content for a file, and its hash wherever the manifest has the old one."""
    entry, new = document["files"].pop(old), hashlib.sha256(data).hexdigest()
    path = f"files/{new}.{SUFFIXES[entry['type']]}"
    document["files"][new] = entry | {"bytes": len(data), "path": path}
    (folder / path).write_bytes(data)
    for method in document["methods"].values():
        for variant in method["variants"]:
            for key in ("plan", "wgsl"):
                variant[key] = new if variant[key] == old else variant[key]
            variant["weights"] = [new if each == old else each for each in variant["weights"]]


def read_bundle(folder: Path) -> None:
    with webpte.load(folder) as bundle:
        assert isinstance(bundle, Bundle)
        for name in bundle.method_names:
            bundle.shapes(name)
            for caps in TARGETS:
                bundle.plan(name, caps=caps)


def run_bundle(random: Random) -> None:
    honest = honest_bundle()
    folder = honest.parent / f"mutant-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(honest, folder)
    document = document_of(honest)
    if random.random() < 0.3:
        write_manifest(folder, changed_json(json.dumps(document), random))
    else:
        of_plans = [hash for hash, entry in document["files"].items() if entry["type"] == "plan"]
        chosen = of_plans if random.random() < 0.6 else list(document["files"])
        for old in chosen if random.random() < 0.5 else [random.choice(chosen)]:
            entry = document["files"][old]
            data = (honest / entry["path"]).read_bytes()
            readable = entry["type"] in ("plan", "json") and random.random() < 0.9
            data = changed_json(data.decode(), random).encode() if readable else changed_bytes(data, random, len(data))
            replace_file(folder, document, old, data)
        write_manifest(folder, json.dumps(document))
    read_bundle(folder)
