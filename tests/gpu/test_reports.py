"""`--json` of every command follows the schema that is published for it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.gpu.test_widths import COMMANDS, MODEL
from tests.support.harness.children import NO_ADAPTER, run_webpte
from tests.support.harness.reports import SCHEMAS, check_report, reported, validator
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_file, simple_pte
from webpte import container as c
from webpte.cli import COMMANDS as ALL
from webpte.cli import load_command, main
from webpte.container import DType, VkInt, VkTensor

F32 = DType.FLOAT32


def with_json():
    return {name for name in ALL if "--json" in load_command(name)[1].format_help()}


def test_json_commands_have_schemas():
    assert {path.stem for path in SCHEMAS.glob("*.json")} == with_json()
    for path in SCHEMAS.glob("*.json"):
        validator(path.stem)


@pytest.mark.parametrize("command", COMMANDS)
def test_reports_of_a_language_model(command, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arguments = [argument for argument in COMMANDS[command] if argument != "--calls"]
    assert reported(capsys, command, *arguments)


@pytest.fixture
def small(tmp_path):
    """x + w over a dim that varies, and -1 for a number that is none."""
    values = [VkTensor(F32, (7,)), VkTensor(F32, (7,), constant_id=0), VkInt(1), VkTensor(F32, (7,))]
    weight = np.array([1, np.nan, np.inf, 1, 1, 1, 1], np.float32)
    simple_pte(tmp_path / "p.pte", values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [weight])
    return tmp_path / "p.pte"


@pytest.mark.parametrize("command", ["inspect", "check", "run", "bench", "compare", "profile"])
def test_reports_of_a_small_program_with_nan(command, small, capsys):
    more = {"bench": ("--seconds", 0.001), "profile": ("--no-roofline", "--repeat", 1)}
    report = reported(capsys, command, small, *more.get(command, ()))
    if command == "compare":
        assert report["ok"] is False  # NaN


def test_report_of_unsupported_delegate_has_its_size(tmp_path, capsys):
    plain = c.TensorValue(F32, (3,), (0,), place=ALONE)
    foreign = [DelegateBlob(b"?" * 33, "CoreMLBackend")]
    pte_file(tmp_path / "p.pte", [Method("forward", [plain, plain], [0], [1], [c.DelegateCall(0, (0, 1))], foreign)])
    (method,) = reported(capsys, "inspect", tmp_path / "p.pte")["methods"]
    (delegate,) = method["delegates"]
    assert not delegate["known"] and delegate["calls"] is None and delegate["bytes"] == 33
    assert (delegate["takes"], delegate["gives"]) == (["f32[3]"], ["f32[3]"]) and "VulkanPartitioner" in method[
        "problem"
    ]
    assert not reported(capsys, "check", tmp_path / "p.pte")["ok"]


def test_json_bundle_equals_inspected_bundle(tmp_path, capsys):
    written = reported(capsys, "bundle", MODEL, "-o", tmp_path / "site", "--sequences", 1)
    assert reported(capsys, "inspect", tmp_path / "site", schema="bundle") == written


def test_json_generate_follows_schema(tmp_path, capsys):
    asked = ("generate", MODEL, "--max-new-tokens", 3)
    assert reported(capsys, *asked, "--prompt", "one two")["logprobs"] is None
    assert len(reported(capsys, *asked, "--prompt", "one two", "--top-logprobs", 2)["logprobs"]) <= 3
    (tmp_path / "prompts.jsonl").write_text(
        '"one"\n{"id": "mine", "prompt": "two"}\n{"prompt": "%s"}\n' % ("x " * 2000)
    )
    assert main([*map(str, asked), "--file", str(tmp_path / "prompts.jsonl")]) == 1
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(reports) == 3 and sum(report["error"] is not None for report in reports) == 1
    for report in reports:
        check_report("generate", report)


def test_json_doctor_without_adapter_follows_schema():
    report = json.loads(run_webpte("doctor", "--json", environment=NO_ADAPTER).stdout)
    check_report("doctor", report)
    assert not report["ok"] and report["remedies"]
