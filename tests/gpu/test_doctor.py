"""`webpte doctor` on the adapter that is there."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from webpte.cli import main
from webpte.debug import selftest
from webpte.debug.doctor import FEATURES
from webpte.device import adapter_caps, adapters
from webpte.lowering import Context


def test_doctor_lists_adapters_and_marks_chosen():
    listed = adapters()
    (chosen,) = [adapter for adapter in listed if adapter.chosen]
    assert chosen.device in adapter_caps().adapter and chosen.backend in adapter_caps().adapter
    assert chosen.limits["max-storage-buffer-binding-size"] >= 128 << 20 and chosen.features
    assert len({(adapter.device, adapter.backend) for adapter in listed}) == len(listed)


def test_doctor_explains_each_used_feature():
    assert adapter_caps().features <= set(FEATURES)


def test_doctor_json_working_machine_reports_ok(capsys):
    """The self-test runs in a child process, as for a user."""
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    test = report["self_test"]
    assert report["ok"] and test["ok"] and all(check["ok"] for check in test["checks"]) and len(test["checks"]) == 3
    assert 0 < test["round_trip"]["min"] <= test["round_trip"]["median"] < 1
    assert test["copy_bytes_per_second"] > 1e6


def test_doctor_prints_readable_report(capsys, monkeypatch):
    monkeypatch.setattr("webpte.debug.doctor.run_self_test", selftest.self_test)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    table, block = out.split("for a bug report")
    for text in ("* is the adapter that programs run on", "shader-f16", "max-buffer-size", "round trip", "B/s"):
        assert text in table
    assert "self-test: ok, round trip" in block and "wgpu-native" in block
    assert "this machine can run programs" in out


def test_doctor_adapters_have_the_numbers_that_select_them(capsys):
    numbers = {adapter.number: adapter for adapter in adapters()}
    assert main(["doctor", "--no-test", "--json"]) == 0
    assert [adapter["number"] for adapter in json.loads(capsys.readouterr().out)["adapters"]] == sorted(numbers)
    assert main(["doctor", "--no-test"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for number, adapter in numbers.items():
        label = f"{number}*" if adapter.chosen else str(number)
        assert any(row[:2] == [label, adapter.device.split()[0]] for row in rows)


def test_doctor_no_test_skips_self_test(capsys):
    assert main(["doctor", "--no-test"]) == 0
    out = capsys.readouterr().out
    assert "shader-f16" in out and "self-test" not in out


@pytest.mark.parametrize("error", [1.0, math.nan])
def test_doctor_self_test_fails_on_wrong_numbers(monkeypatch, error):
    monkeypatch.setattr(selftest, "_error", lambda trial: error)
    report = selftest.self_test()
    assert not report["ok"] and report["round_trip"] is None


def test_doctor_self_test_detects_partial_kernel(monkeypatch):
    """A real fault on the device: every dispatch leaves out its last workgroups."""
    honest = Context.dispatch

    def lazy(self, *args, threads, **options):
        honest(self, *args, threads=max(threads // 2, 1), **options)

    monkeypatch.setattr(Context, "dispatch", lazy)
    report = selftest.self_test()
    assert not report["ok"]
    assert not np.any([check["ok"] for check in report["checks"]]), report
