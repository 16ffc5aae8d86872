"""The files of `webpte bench --report` follow the schema and name no user and no path; a run can be interrupted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.support.harness.results import check_result
from tests.support.harness.terminal import SRC
from tests.support.harness.writer import simple_pte
from webpte.cli import main
from webpte.container import DType, VkInt, VkTensor
from webpte.debug.bug_report import without_personal_data
from webpte.device import acquire, timing
from webpte.errors import DeviceError
from webpte.measure import bench_model, bench_report
from webpte.progress import Progress

MARKER = "zaphod"
F32 = DType.FLOAT32


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a home and a current folder with the user's name in them; only the smallest decoder is measured."""
    folder = tmp_path / MARKER / "work"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USER", MARKER)
    monkeypatch.setattr(bench_report, "DECODERS", bench_model.DECODERS[:1])
    return folder


def test_report_follows_the_schema_and_names_no_user_or_path(place, capsys):
    values = [VkTensor(F32, (7,)), VkTensor(F32, (7,), constant_id=0), VkInt(1), VkTensor(F32, (7,))]
    simple_pte(place / "p.pte", values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [np.ones(7, np.float32)])
    assert main(["bench", "--report", str(place / "p.pte"), "-o", "mine", "--seconds", "0.01"]) == 0
    text, block = (place / "mine.json").read_text("utf-8"), (place / "mine.md").read_text("utf-8")
    assert MARKER not in text + block and "/" not in block.replace("/s", "")
    report = json.loads(text)
    check_result(report)
    assert capsys.readouterr().out.strip() == block.strip()
    assert [check["ok"] for check in report["checks"]] == [True] * len(report["checks"])
    (model,) = report["models"]
    assert model["tokens"] == {"n": 16, "equal": 16, "ok": True} and model["problem"] is None
    assert model["decode"]["n"] >= 3 and model["decode"]["min"] <= model["decode"]["median"] <= model["decode"]["max"]
    assert report["software"] is (report["adapter"]["kind"] == "CPU")
    assert ("(software)" in block.splitlines()[0]) is report["software"]
    assert [program["file"] for program in report["programs"]] == ["p.pte"]


def test_decoder_that_fails_is_part_of_the_report(place, monkeypatch, capsys):
    def fail(*arguments):
        raise DeviceError(f"lost in {place}", code="limits")

    monkeypatch.setattr(bench_report, "open_graph", fail)
    monkeypatch.setattr(bench_report, "MAX_SECONDS", 1000)
    assert main(["bench", "--report", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    check_result(report)
    assert report["models"][0]["problem"].startswith("DeviceError") and MARKER not in json.dumps(report)
    assert "failed: width 256" in (place / "webpte-report.md").read_text("utf-8")


def test_decoders_are_left_out_after_the_time_limit(place, monkeypatch):
    monkeypatch.setattr(bench_report, "MAX_SECONDS", 0)
    events: list[Progress] = []
    report = bench_report.device_report(progress=events.append)
    assert (report["models"], report["left_out"]) == ([], [256])
    check_result(report)
    assert events[0].done == 0 and events[-1].done == events[-1].total
    assert [event.note for event in events] == ["op checks", "probes", "width 256", ""]
    assert "width 256, for lack of time" in bench_report.markdown(report)


@pytest.mark.parametrize("line", [["-o", "x"], ["--report", "--plot", "x.png"], ["--report", "none.pte"], ["a", "b"]])
def test_arguments_that_do_not_go_together_are_refused(line, place, capsys):
    assert main(["bench", *line]) == 1
    assert capsys.readouterr().err.startswith("InputError") and not list(place.iterdir())


def test_personal_data_is_replaced(place):
    texts = [f"{place}/a.pte", f"{place.parent}/b", f"by {MARKER}.", f"{MARKER}s stay", "~ and . stay"]
    assert without_personal_data({"texts": texts}) == {
        "texts": ["./a.pte", "~/b", "by USER.", f"{MARKER}s stay", "~ and . stay"]
    }


def test_interrupt_ends_the_report_with_130(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "webpte", "bench", "--report"]
    child = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(SRC)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stderr is not None
    seen = b""
    while b"webpte.measure.bench_report\n" not in seen:
        assert select.select([child.stderr], [], [], 60)[0]
        seen += (piece := os.read(child.stderr.fileno(), 65536))
        assert piece, seen.decode()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130 and b"Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_cost_of_dispatches_is_measured():
    gpu = acquire({})
    try:
        cost = timing.measure_dispatch_cost(gpu)
    finally:
        gpu.release()
    assert len(cost.single) == len(cost.many) == timing.COST_ROUNDS
    assert min(cost.many) > min(cost.single) > 0 and cost.per_dispatch > 0
