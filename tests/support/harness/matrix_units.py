"""Layers for matrix units: planned by capabilities, and run by the player in Node on the lavapipe of a newer Mesa.

wgpu-native does not enable cooperative matrices. Dawn does, and lavapipe 26 has 8 x 8 x 8 products of f16 with sums in
f32. Its packages are those of `python -m bench.compilers.build apple`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from bench import debian
from bench.compilers import debian_root
from tests.support.harness.cases import Array, Case, OneOp, choosing
from tests.support.harness.node import SCRIPTS
from webpte.bundles import methods
from webpte.bundles.site import Site
from webpte.wgsl import APPLE_MATRIX, MATRIX_SHAPES, Caps, matrix_feature

SIZES = (32, 64)
SECONDS = 1500  # for all layers of a run: lavapipe compiles a kernel in 5 s of a processor
Shape = tuple[int, int, int]


def variant(size: int, shape: Shape) -> str:
    return f"matrix-{size}-{'x'.join(map(str, shape))}"


def caps_with(shape: Shape, subgroup: int = 32) -> Caps:
    """Return the capabilities of a GPU whose matrix units have a shape."""
    return Caps(features=frozenset({"shader-f16", "subgroup", matrix_feature(*shape)}), subgroup=subgroup)


def every_variant() -> Iterator[tuple[str, Shape]]:
    for shape in MATRIX_SHAPES:
        for size in SIZES:
            yield variant(size, shape), shape


def tint_messages(texts: Sequence[str]) -> list[list[str]]:
    """Return what Tint reports about each text."""
    done = subprocess.run(
        ["node", SCRIPTS / "tint.mjs"], input=json.dumps(texts), capture_output=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class Layers:
    """Programs of one call each, as the methods of a bundle for lavapipe's matrix units."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        self.cases = cases
        self.programs: list[OneOp] = []
        self._folder = folder / "site"
        site = Site(self._folder)
        with ExitStack() as opened:
            writer = methods.MethodWriter(site)
            writer._targets = (caps_with(APPLE_MATRIX, subgroup=8),)
            shapes = {}
            for number, case in enumerate(cases):
                name = f"layer {number}"
                path = folder / f"{number}.pte"
                self.programs.append(OneOp(case))
                self.programs[-1].write(path)
                program = opened.enter_context(webpte.load(path))
                tensors = [t for t in case.tensors if not t.constant]
                shapes[name] = [[t.at(sizes) for t in tensors] for sizes in case.sizes]
                with choosing(case.variant):
                    planner = writer.add(
                        name,
                        program.fingerprint("forward"),
                        lambda caps, program=program, name=name: methods.planned_at(  # type: ignore[misc]
                            program, "forward", caps, shapes[name]
                        ),
                    )
                assert any(case.variant in key.names for key in planner.examples), f"{case}: no such variant"
            site.finish("program", {"name": "layers", "methods": writer.written(), "shapes": shapes})

    def run(self, calls: Sequence[tuple[int, Sequence[Array]]]) -> list[list[Array]]:
        """Return the results of calls: the number of a layer and its inputs."""
        listed = [
            {
                "method": f"layer {number}",
                "inputs": [{"dims": list(x.shape), "data": _encoded(x.astype("<f4"))} for x in inputs],
            }
            for number, inputs in calls
        ]
        answer = json.loads(_on_lavapipe({"folder": str(self._folder), "calls": listed}))
        assert "llvmpipe" in answer["adapter"]["description"], answer["adapter"]
        return [
            [np.frombuffer(base64.b64decode(out["data"]), "<f4").reshape(out["dims"]) for out in outs]
            for outs in answer["results"]
        ]


def _encoded(array: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _on_lavapipe(jobs: Any) -> str:
    """Return what the script writes in a Node that runs with the libraries and the driver of the newer Mesa."""
    node = shutil.which("node")
    assert node is not None
    loader = debian.loader(debian_root.folder())
    root: list[str | Path] = [loader, "--library-path", loader.parent, "--argv0", node, node]
    with tempfile.TemporaryDirectory() as runtime:
        environment = {**os.environ, "VK_ICD_FILENAMES": str(debian_root.icd("lvp")), "XDG_RUNTIME_DIR": runtime}
        command = [*root, SCRIPTS / "matrices.mjs"]
        done = subprocess.run(
            command, input=json.dumps(jobs), capture_output=True, encoding="utf-8", timeout=SECONDS, env=environment
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]
