"""Run `webpte export`: by name from a hub, with its report as JSON, and stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

import webpte
from tests.support.harness.children import SRC, run_webpte
from tests.support.harness.errors import raises
from tests.support.harness.hub_server import hub_server
from tests.support.models import talker
from webpte.export import export_checkpoint
from webpte.llm import LLM

SCHEMA = json.loads((SRC / "webpte" / "cli" / "schemas" / "export.json").read_text(encoding="utf-8"))
# tests/gpu/test_build_calibration.py calibrates, and tests/gpu/test_build_quality.py measures the quality.
SIZES = ("--quantize", "4w", "--no-calibrate", "--no-quality", "--max-context", "64", "--max-prefill", "32")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("talker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(talker, "LAYERS", 1)  # each takes seconds to export
        talker.write_checkpoint(folder)
    return folder


def test_export_command_hub_name_cached_offline(checkpoint, tmp_path):
    """The command in a process of its own, with nothing set but what a person sets."""
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    with hub_server() as hub:
        environment["HF_ENDPOINT"] = hub.address
        commit = hub.add("org/talker", {file.name: file.read_bytes() for file in checkpoint.iterdir()})
        target, asked = tmp_path / "talker.pte", ("export", "hf:org/talker", *SIZES)
        child = run_webpte(*asked, "-o", target, "--json", environment=environment, timeout=400)
        assert child.returncode == 0, child.stderr
        report = json.loads(child.stdout)
        jsonschema.validate(report, SCHEMA)
        assert report["source"] == {"repository": "org/talker", "revision": "main", "commit": commit}
        names = [Path(file["path"]).name for file in report["files"]]
        assert names[0] == "talker.pte" and {"talker.tokenizer.json", "talker.source.json"} < set(names)
        assert {path.name for path in tmp_path.iterdir()} == {*names, "home"}
        stages = [stage["name"] for stage in report["stages"]]
        assert stages == ["fetch config", "fetch weights", "read", "build"]
        assert 0 < report["peak_memory"] < 8 << 30 and report["seconds"] > 0
    with LLM.load(target) as llm:
        llm.stop_tokens = frozenset()  # random weights choose any token
        answer = llm.complete("Hello", max_new_tokens=3)
        answer.result()
        assert answer.usage.completion_tokens == 3
    # The hub is gone. What was fetched is read again, up to where its sizes contradict the options.
    refused = ("export", f"hf:org/talker@{commit}", "--quantize", "4w", "--group-size", "48")
    child = run_webpte(*refused, "-o", tmp_path / "x.pte", environment=environment)
    assert child.returncode == 1 and "columns are not divided by the group size, 48" in child.stderr
    assert not list(tmp_path.glob("*x.pte*"))


def test_export_command_interrupted_leaves_nothing(checkpoint, tmp_path):
    slow = ("--quantize", "4w", "--max-context", "64", "--quality")  # without calibration it takes less than a second
    command = [sys.executable, "-m", "webpte", "export", checkpoint, "-o", tmp_path / "x.pte", *slow]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": str(SRC), "PATH": ""})
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".x.pte.*.part")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.glob(".x.pte.*.part")), "it never began to write"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 130 and "Traceback" not in errors, errors
    assert list(tmp_path.iterdir()) == []


def test_export_existing_target_refused_before_work(checkpoint, tmp_path):
    (tmp_path / "x.tokenizer.json").mkdir()
    with raises(webpte.InputError, tmp_path / "x.tokenizer.json", "x.pte"):
        export_checkpoint(checkpoint, tmp_path / "x.pte")
    with raises(webpte.InputError, "jobs", 0):
        export_checkpoint(checkpoint, tmp_path / "y.pte", jobs=0)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tokenizer.json"]
