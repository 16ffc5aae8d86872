"""What compilers of GPUs need to run: errors of builds, the mirror of Debian, and comparisons of reports."""

from __future__ import annotations

import csv
import io
import subprocess
import sys

import pytest

from bench import debian
from bench.compilers import __main__ as command
from bench.compilers import build, debian_root, drivers
from bench.compilers.report import KernelReport, PlanReport, ProgramReport, cell, csv_table, differences, merged

FIGURES_OF_M1 = {
    "registers": 60, "occupancy": 1024, "instructions": 50, "checked_instructions": 70, "spills": 0,
    "loop_instructions": 16,
}  # fmt: skip


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("sites", "mirror"),
    [
        ("http://a/debian Debian Backports\nhttp://b/debian Debian\nhttp://c/debian Debian\n", "http://b/debian"),
        ("http://a/debian-security Debian\nhttps://b/d Debian\n", "https://b/d"),
        ("http://archive.ubuntu.com/ubuntu Ubuntu\n", "https://deb.debian.org/debian"),
        ("", "https://deb.debian.org/debian"),
    ],
)
def test_mirror_is_the_first_archive_of_debian(sites, mirror):
    assert debian.mirror_of(sites) == mirror


def test_apt_requires_signatures_and_has_no_part_of_the_system(tmp_path):
    options = debian.apt_options(tmp_path)
    assert "APT::Get::AllowUnauthenticated=false" in options
    assert "Acquire::AllowInsecureRepositories=false" in options
    assert "Acquire::AllowWeakRepositories=false" in options
    assert {f"Dir::State={tmp_path}", f"Dir::Cache={tmp_path}", "Dir::Etc::sourceparts=/dev/null"} <= set(options)


def test_run_command_that_fails_raises_with_its_last_lines(monkeypatch):
    class Failed:
        returncode, stdout = 100, "\n".join([*map(str, range(20)), "E: the signature is invalid"])

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: Failed)
    with pytest.raises(debian.BuildError, match=r"apt-get ended with 100:\n9\n(.*\n)*E: the signature is invalid"):
        debian.run("the index", ["apt-get", "update"])


def test_run_command_that_is_missing_raises(monkeypatch):
    def run(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "apt-get")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(debian.BuildError, match="the index: apt-get is not installed"):
        debian.run("the index", ["apt-get", "update"])


def test_build_without_keyring_prints_the_package_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(debian, "KEYRING", tmp_path / "missing.gpg")
    monkeypatch.setattr(sys, "argv", ["build", "apple"])
    assert build.main() == 1
    assert "missing.gpg is missing: apt-get install debian-archive-keyring" in capsys.readouterr().err
    assert debian_root.missing() and not debian_root.folder().exists()


def test_build_that_is_interrupted_leaves_no_root(tmp_path, monkeypatch):
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(debian, "KEYRING", keyring)

    def run(purpose: str, command: list[object], **_: object) -> str:
        raise debian.BuildError(purpose)

    monkeypatch.setattr(debian, "run", run)
    with pytest.raises(debian.BuildError):
        debian_root.build()
    assert list((tmp_path / "webpte/compilers").iterdir()) == []


@pytest.mark.parametrize(
    ("device", "target"), [("m1", "apple"), ("m2", "apple"), ("turing", "nvidia"), ("ampere", "nvidia")]
)
def test_command_device_that_is_not_built_names_what_to_run(device, target, tmp_path, monkeypatch, capsys):
    kernel = tmp_path / "kernel.wgsl"
    kernel.write_text("")
    monkeypatch.setattr(sys, "argv", ["compilers", "--wgsl", str(kernel), "--device", device])
    assert command.main() == 1
    assert (
        f"error: {device}: Mesa's part is not built: python -m bench.compilers.build {target}"
        in capsys.readouterr().err
    )


def report(figures: dict[str, dict[str, int]], **versions: str) -> ProgramReport:
    row = KernelReport("k", 64, None, {"forward": [1, 1]}, figures)
    return ProgramReport("p", 1, 1, {"wgpu": "1", **versions}, [PlanReport(list(figures), [row])])


def test_differences_are_of_devices_with_the_same_mesa():
    recorded = report(
        {"navi31": {"instructions": 5}, "m1": {"instructions": 7}}, mesa="25.0.7-2~bpo12+1", newer_mesa="26.1.6-1"
    )
    same = report({"navi31": {"instructions": 5}, "m1": {"instructions": 7}}, mesa="25.0.7-2", newer_mesa="26.1.6-3")
    assert differences(same, recorded) == ([], [])
    changed = report({"navi31": {"instructions": 6}, "m1": {"instructions": 8}}, mesa="25.0.7-2", newer_mesa="26.2.0-1")
    assert differences(changed, recorded) == (["navi31"], ["m1"])
    assert differences(report({"turing": {"instructions": 5}}, newer_mesa="26.1.6-1"), recorded) == (["turing"], [])


def test_merged_report_keeps_other_devices_and_joins_equal_plans():
    recorded = report({"navi31": {"instructions": 5}, "m1": {"instructions": 7}}, mesa="25", newer_mesa="26.1")
    new = report({"m1": {"instructions": 8}, "m2": {"instructions": 9}}, newer_mesa="26.2")
    result = merged(new, recorded)
    assert [plan.devices for plan in result.plans] == [["navi31", "m1", "m2"]]
    (row,) = result.kernels("m2")
    assert {name: figures["instructions"] for name, figures in row.figures.items()} == {"navi31": 5, "m1": 8, "m2": 9}
    assert result.versions == {"mesa": "25", "newer_mesa": "26.2", "wgpu": "1"}


def test_merged_report_other_plan_stays_apart():
    recorded = report({"navi31": {"instructions": 5}, "m1": {"instructions": 7}}, mesa="25", newer_mesa="26")
    new = report({"m1": {"instructions": 8}}, newer_mesa="26")
    new.plans[0].kernels[0].kernel = "another"
    result = merged(new, recorded)
    assert [plan.devices for plan in result.plans] == [["navi31"], ["m1"]]
    assert result.kernels("navi31")[0].figures == {"navi31": {"instructions": 5}}


def test_cell_of_apple_has_instructions_with_checks_in_parentheses():
    figures = {"registers": 183, "occupancy": 576, "instructions": 1328, "spills": 0, "checked_instructions": 1840}
    (row,) = report({"m1": figures}, newer_mesa="26.1.6-1").kernels("m1")
    assert cell(row, "m1") == "183 · 576 · 1328 (1840)"


def test_csv_table_has_a_row_per_kernel_phase_and_device():
    figures = {"m1": FIGURES_OF_M1, "navi31": {"registers": 48, "occupancy": 16, "instructions": 90, "spills": 0}}
    kernel = KernelReport("linear[rows=2]", 64, 8, {"decode": [3, 12], "prefill": [3, 96]}, figures)
    head, *rows = csv.DictReader(
        io.StringIO(csv_table([ProgramReport("a", 1, 1, {}, [PlanReport(["m1", "navi31"], [kernel])])]))
    )
    assert [(head["device"], head["phase"])] + [(row["device"], row["phase"]) for row in rows] == [
        ("navi31", "decode"), ("navi31", "prefill"), ("m1", "decode"), ("m1", "prefill"),
    ]  # fmt: skip
    assert (head["workgroups"], head["instructions"], head["checked_instructions"]) == ("12", "90", "")
    assert (rows[1]["checked_instructions"], rows[1]["per_multiply_add"]) == ("70", "2.00")


def test_command_csv_without_stored_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench.compilers", "llama256", "--csv"])
    with pytest.raises(SystemExit):
        command.main()
    assert "--csv: expected with --stored" in capsys.readouterr().err


def test_devices_of_the_newer_mesa_are_apples_and_nvidias():
    newer = {
        name for name, device in drivers.DEVICES.items() if drivers.VENDORS[device.vendor].mesa == drivers.NEWER_MESA
    }
    assert newer == {"m1", "m2", "turing", "ampere"}
