"""`webpte check`: every problem of a program in one run, with no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_file, simple_pte, vk_blob
from webpte import container as c
from webpte.cli import main
from webpte.container import DType, VkInt, VkTensor
from webpte.debug.check import BROWSER, check_file, device_caps
from webpte.device.memory import MemoryLimit

F32 = DType.FLOAT32
HUGE = 72 << 20  # elements; 288 MiB of f32 are more than a browser allocates


def problems(report, kind):
    return [problem for problem in report["problems"] if problem["kind"] == kind]


@pytest.fixture(name="broken")
def broken_program(tmp_path):
    """relu(sort_of(x + w)) > 0, with a constant no one has, an op no one knows, and a dtype relu does not take."""
    values: list[Any] = [
        VkTensor(F32, (HUGE,)),
        VkTensor(F32, (HUGE,), constant_id=0),
        VkInt(1),
        VkTensor(F32, (HUGE,)),
        VkTensor(F32, (HUGE,)),
        VkTensor(DType.INT8, (7,)),
        VkTensor(DType.INT8, (7,)),
        VkTensor(F32, (HUGE,)),
    ]
    calls = [
        ("aten.add.Tensor", (0, 1, 2, 3)),
        ("aten.sort_of.default", (3, 4)),
        ("aten.sort_of.default", (3, 7)),
        ("aten.tanh.default", (5, 6)),
    ]
    named = [c.VkConstant(None, "the.weight", 4 * HUGE)]
    blob = vk_blob(values, calls, [0, 5], [4, 6], named)
    border = [c.TensorValue(v.dtype, v.dims, (0,), place=ALONE) for v in (values[0], values[5], values[4], values[6])]
    ids = (0, 1, 2, 3)
    method = Method("forward", border, ids[:2], ids[2:], [c.DelegateCall(0, ids)], [DelegateBlob(blob)])
    pte_file(tmp_path / "broken.pte", [method])
    return tmp_path / "broken.pte"


def test_load_missing_constant_raises_data_error(broken):
    with raises(webpte.DataError, "the.weight", code="missing_constant"):
        webpte.load(broken)


def add(path, elements=7, **options):
    values = [
        VkTensor(F32, (elements,)),
        VkTensor(F32, (elements,), constant_id=0),
        VkInt(1),
        VkTensor(F32, (elements,)),
    ]
    weight = np.ones(elements, np.float32)
    return simple_pte(path, values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [weight], **options)


def test_check_valid_program_has_no_problems(tmp_path, capsys):
    add(tmp_path / "p.pte")
    assert main(["check", str(tmp_path / "p.pte"), "--limits", "browser"]) == 0
    assert "no problems" in capsys.readouterr().out
    report = check_file(tmp_path / "p.pte")
    assert report["ok"] and report["memory"]["constant"] == 32 and report["memory"]["offered"] is None
    (method,) = report["methods"]
    assert {limit["name"]: limit["needs"] for limit in method["limits"]}["max-storage-buffers-per-shader-stage"] == 3


def test_data_files_are_looked_into(tmp_path):
    from tests.support.harness.writer import ptd_file

    keyed = add(tmp_path / "p.pte", where="external")
    assert [p["kind"] for p in check_file(tmp_path / "p.pte")["problems"]] == ["constant"]
    ptd_file(tmp_path / "p.ptd", keyed)
    assert check_file(tmp_path / "p.pte", [tmp_path / "p.ptd"])["ok"]
    ptd_file(tmp_path / "short.ptd", dict.fromkeys(keyed, b"1234"))
    (short,) = check_file(tmp_path / "p.pte", [tmp_path / "short.ptd"])["problems"]
    assert short["detail"] == "has 4 bytes of data; its shape needs 28"


def test_too_many_live_integers_are_a_problem(tmp_path):
    """257 rows, each at an index of its own that comes from the data of an input."""
    values: list[Any] = [VkTensor(F32, (4, 2)), VkTensor(DType.INT32, (257,)), VkInt(0)]
    rows = range(3, 3 + 3 * 257, 3)
    values += [value for n in range(257) for value in (VkTensor(F32, (2,)), VkInt(n), c.VkSymInt(0))]
    calls: list[tuple[str, tuple[int, ...]]] = []
    for row in rows:
        calls.append(("et_vk.select_as_symint.default", (1, 2, row + 1, row + 2)))
        calls.append(("aten.select_copy.int", (0, 2, row + 2, row)))
    simple_pte(tmp_path / "p.pte", values, calls, [0, 1], [*rows])
    (problem,) = check_file(tmp_path / "p.pte")["problems"]
    assert problem["kind"] == "limit" and problem["method"] == "forward"
    assert f"{problem['subject']} {problem['detail']}".startswith("live integers: 257 are read by kernels")


def test_check_software_device_insufficient_memory_is_reported(tmp_path, monkeypatch, capsys):
    add(tmp_path / "p.pte")
    caps = replace(BROWSER, kind="cpu")
    needed = check_file(tmp_path / "p.pte", caps=caps)["memory"]["total"]
    for free, kinds in ((needed, []), (needed - 1, ["memory"])):
        monkeypatch.setattr("webpte.debug.check.memory_limit", lambda kind, held, free=free: MemoryLimit(free, ""))
        report = check_file(tmp_path / "p.pte", caps=caps)
        assert [p["kind"] for p in report["problems"]] == kinds and report["memory"]["offered"] == free
    monkeypatch.setattr("webpte.cli.check.device_caps", lambda *_: caps)
    assert main(["check", str(tmp_path / "p.pte")]) == 1
    assert f"needs {needed} bytes of memory" in " ".join(capsys.readouterr().out.split())


def test_limits_by_name(tmp_path, capsys):
    add(tmp_path / "p.pte", 1000)
    arguments = ["check", str(tmp_path / "p.pte"), "--limits", "max-buffer-size=1024"]
    assert main(arguments) == 1
    assert "4000 bytes, the device allocates 1024" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments[:-1], "max-storage-buffer-binding-size=1024"]) == 1
    assert "binds 12 buffers, the device allows 8; value" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments[:-1], "max-storage-buffer-binding-size=2048"]) == 0
    capsys.readouterr()
    assert main([*arguments[:-1], "max-warp-size=3"]) == 1
    assert "The names are max-storage-buffers" in capsys.readouterr().err


def test_backends_of_all_methods(tmp_path):
    plain = c.TensorValue(F32, (3,), (0,), place=ALONE)
    methods = [
        Method("foreign", [plain, plain], [0], [1], [c.DelegateCall(0, (0, 1))], [DelegateBlob(b"?", "CoreMLBackend")]),
    ]
    pte_file(tmp_path / "p.pte", methods)
    report = check_file(tmp_path / "p.pte")
    assert [(p["method"], p["kind"], p["where"]) for p in report["problems"]] == [
        ("foreign", "backend", ["delegate 0"]),
    ]
    assert len(report["remedies"]) == 1


def test_check_lists_all_calls_without_lowering(tmp_path):
    """Two masks as indices, which select an unknown number of elements, and the op between them still counts."""
    mask = VkTensor(DType.BOOL, (5,))
    values = [
        VkTensor(F32, (5,)),
        mask,
        c.VkValueList((1,)),
        VkTensor(F32, (5,)),
        VkTensor(F32, (5,)),
        VkTensor(F32, (5,)),
    ]
    calls = [
        ("aten.index.Tensor", (0, 2, 3)),
        ("aten.relu.default", (3, 4)),
        ("aten.index.Tensor", (4, 2, 5)),
    ]
    simple_pte(tmp_path / "p.pte", values, calls, [0, 1], [5])
    report = check_file(tmp_path / "p.pte")
    result = problems(report, "graph")
    assert [p["where"] for p in result] == [["delegate 0, node 0"], ["delegate 0, node 2"]]
    assert all("torch.where" in p["detail"] and p["subject"] == "aten.index.Tensor" for p in result)
    memory = report["methods"][0]["memory"]
    assert memory is not None and memory["activation"] > 0


def test_limits_and_adapter_exclude_each_other(tmp_path):
    with pytest.raises(SystemExit):
        main(["check", "p.pte", "--adapter", "--limits", "browser"])
    assert device_caps(limits="browser").limit("max-storage-buffer-binding-size") == 128 << 20
