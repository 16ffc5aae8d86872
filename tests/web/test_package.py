"""The npm package: packed, installed elsewhere, checked by its types, bundled, run."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from .conftest import WEB, run_command
from .test_model import one_shape

SAMPLE = Path(__file__).parent / "sample" / "app.ts"
PAGE = '<!doctype html><html lang="en"><title>sample</title><script type="module" src="app.js"></script></html>'
WRONG = """
import { load } from "webpte";
const model = await load("/site/");
model.chat.completions.create({ messages: "no list" });
model.run(["text"]);
model.nothing();
"""


@pytest.fixture(scope="module")
def app(project):
    """Return the folder with a program that uses the package."""
    (project / "app.ts").write_text(SAMPLE.read_text())
    return project


def tsc(project, file, *options):
    command = [
        WEB / "node_modules" / ".bin" / "tsc", "--noEmit", "--strict", "--ignoreConfig", "--target", "es2022",
        "--module", "nodenext", "--lib", "es2024,dom,dom.iterable,dom.asynciterable", "--types", "", *options, file,
    ]  # fmt: skip
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)


def test_npm_package_files_are_exactly_expected(project):
    installed = project / "node_modules" / "webpte"
    names = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    assert {"package.json", "README.md", "LICENSE", "src/index.js", "src/worker.js", "types/index.d.ts"} <= names
    assert {name.partition("/")[0] for name in names} == {
        "package.json",
        "README.md",
        "LICENSE",
        "src",
        "types",
    }


def test_npm_types_accept_sample_and_reject_errors(app):
    done = tsc(app, "app.ts")
    assert done.returncode == 0, done.stdout
    (app / "wrong.ts").write_text(WRONG)
    done = tsc(app, "wrong.ts")
    assert re.findall(r"^wrong\.ts\((\d+),", done.stdout, re.MULTILINE) == ["4", "5", "6"]


@pytest.mark.parametrize("whole", [True, False])
def test_package_bundled_with_esbuild_runs(whole, app, bundled, server, page):
    """With its worker beside it, or without: then the page does the work."""
    out = app / f"out{whole:d}"
    entries = ["app.ts", "worker=webpte/worker"] if whole else ["app.ts"]
    esbuild = WEB / "node_modules" / ".bin" / "esbuild"
    run_command(esbuild, *entries, "--bundle", "--format=esm", "--minify", f"--outdir={out}", cwd=app)
    (out / "index.html").write_text(PAGE)
    server.folders |= {"app": out, "site": bundled("add_external", one_shape)[1]}
    server.headers["Content-Security-Policy"] = "default-src 'self'"
    page.goto(f"{server.origin}/app/")
    page.wait_for_selector("body[data-found]", state="attached")
    assert len(page.workers) == whole
    data = json.loads(page.get_attribute("body", "data-found") or "")
    assert (data["kind"], data["code"], data["stages"][0], data["stages"][-1]) == (
        "program", "input", "manifest", "ready",
    )  # fmt: skip
    assert np.isfinite(data["data"]).all() and len(data["data"]) == 32
