"""Behavior in a new interpreter: without an adapter, without optional packages, before anything is imported."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import webpte
from tests.support.harness.children import NO_ADAPTER, SRC, run_python, run_webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from tests.unit.test_chat_limits import BOMBS, MEGABYTES
from tests.unit.test_check import HUGE, add, broken_program, problems  # noqa: F401 - a fixture
from webpte.container import DType, VkTensor


def test_check_without_adapter_reports_all_problem_kinds(broken):
    done = run_webpte("check", broken, "--json", environment=NO_ADAPTER)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert not report["ok"] and "no adapter" in report["device"]
    (constant,) = problems(report, "constant")
    assert constant["subject"] == "key the.weight" and "aten.add.Tensor (delegate 0, node 0)" in constant["where"]
    (op,) = problems(report, "op")
    assert op["subject"] == "aten.sort_of.default" and op["where"] == ["delegate 0, node 1", "delegate 0, node 2"]
    (dtype,) = problems(report, "dtype")
    assert dtype["subject"] == "aten.tanh.default" and "i8[7]" in dtype["detail"] and "f32" in dtype["remedy"]
    over = problems(report, "limit")
    assert any("aten.add.Tensor (delegate 0, node 0)" in p["where"] for p in over)
    assert all(f"{4 * HUGE} bytes, the device allocates {256 << 20}" in p["detail"] for p in over)
    assert report["memory"]["constant"] == 4 * HUGE
    assert any("operator_blocklist=[exir_ops.edge.aten.sort_of.default]" in line for line in report["remedies"])


def test_check_without_adapter_prints_readable_report(broken):
    done = run_webpte("check", broken, environment=NO_ADAPTER)
    assert done.returncode == 1 and not done.stderr
    for text in ("the.weight", "aten.sort_of.default (x2) has no kernel", "delegate 0, node 2", "6 problems"):
        assert text in done.stdout, done.stdout


def test_check_requiring_missing_adapter_fails(tmp_path):
    add(tmp_path / "p.pte")
    done = run_webpte("check", tmp_path / "p.pte", "--adapter", environment=NO_ADAPTER)
    assert done.returncode == 1
    assert "DeviceError: no WebGPU adapter" in done.stderr and "Traceback" not in done.stderr


def test_doctor_without_adapter_prints_remedies():
    done = run_webpte("doctor", environment=NO_ADAPTER)
    assert done.returncode == 1 and not done.stderr
    for text in ("no WebGPU adapter found", "mesa-vulkan-drivers", "VK_DRIVER_FILES=/nonexistent", "wgpu-native"):
        assert text in done.stdout, done.stdout


def test_json_without_an_adapter():
    done = run_webpte("doctor", "--json", environment=NO_ADAPTER)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and not report["ok"] and report["adapters"] == [] and report["remedies"]
    assert {"webpte", "wgpu", "wgpu-native", "numpy", "python", "os"} <= set(report["versions"])


def test_packages_are_imported_at_first_use():
    text = run_python(
        "import sys, webpte\n"
        "assert not {'webpte.llm', 'webpte.export'} & set(sys.modules)\n"
        "print(webpte.llm.LLM.__name__, webpte.export.lower.__name__, 'torch' in sys.modules)"
    )
    assert text.split() == ["LLM", "lower", "False"]


def test_versions_are_shown_for_a_bug_report(capsys):
    webpte.show_versions()
    text = capsys.readouterr().out
    assert f"webpte {webpte.__version__}, " in text and "python 3." in text and "numpy 2." in text
    file = io.StringIO()
    webpte.show_versions(file)
    assert file.getvalue() == text
    with raises(webpte.InputError, "file", "int", code="wrong_type"):
        webpte.show_versions(3)  # type: ignore[arg-type]


def test_versions_are_shown_where_something_is_broken(monkeypatch):
    text = run_python(f"import os; os.environ.update({NO_ADAPTER!r})\nimport webpte; webpte.show_versions()")
    assert f"webpte {webpte.__version__}" in text and "no adapters" in text
    text = run_python("import sys; sys.modules['wgpu'] = None\nimport webpte; webpte.show_versions()")
    assert f"webpte {webpte.__version__}, python 3." in text and "no more is known: ModuleNotFoundError" in text


def test_server_process_does_not_import_gpu_modules():
    modules = "webpte.serve.supervisor, webpte.llm.settings, webpte.llm.tokenizer, webpte.llm.prompts"
    modules += ", webpte.embed.text_tokenizer"
    code = f"import sys, {modules}\nfrom webpte.llm import Tokenizer, parse_tool_calls, GenerateSettings"
    assert run_python(f"{code}\nprint(sorted({{'wgpu', 'torch', 'webpte.device'}} & set(sys.modules)))").strip() == "[]"


def test_serve_missing_packages_prints_install_command(tmp_path):
    (tmp_path / "starlette.py").write_text("raise ImportError('no starlette')")
    (tmp_path / "m.pte").touch()
    path = {"PYTHONPATH": f"{tmp_path}:{SRC}"}
    process = run_webpte("serve", tmp_path / "m.pte", environment=path)
    assert process.returncode == 1 and "pip install 'webpte[server]'" in process.stderr


OWN = """
import sys
import webpte
from webpte.wgsl import Caps
try:
    webpte.load(sys.argv[1]).plan("forward", Caps())
except webpte.GraphError as error:
    print(error)
"""


def test_file_calling_internal_op_is_refused(tmp_path):
    simple_pte(tmp_path / "p.pte", [VkTensor(DType.FLOAT32, (4,))] * 2, [("webpte.copy", (0, 1))], [0], [1])
    assert "a file must not call" in run_python(OWN, tmp_path / "p.pte")


def test_hostile_files_together_stay_below_memory_limit():
    child = """
import json, resource, sys
import webpte
from webpte.llm.prompts import render_chat
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for template in json.loads(sys.stdin.read()):
    try:
        render_chat(template, [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}])
    except webpte.FormatError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    values = json.dumps(list(BOMBS.values()))
    done = subprocess.run([sys.executable, "-c", child], input=values, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MEGABYTES << 10
