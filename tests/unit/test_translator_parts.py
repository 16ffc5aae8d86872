"""The tool that translates kernels for Metal and Direct3D 12: its text for clang, its stored results and its report."""

from __future__ import annotations

import json
import sys

import pytest

from bench.translators import __main__ as command
from bench.translators import build, kernels, metal, targets, tint
from bench.translators.kernels import Source
from bench.translators.targets import Result

PLAIN = Source("plain", "@compute @workgroup_size(1) fn main() {}", 64)
HALF = Source("half", "enable f16;\n", 64)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "versions", lambda: {"naga": "30"})


def test_metal_text_constructors_are_calls_and_threadgroup_memory_is_asserted():
    text = "#include <metal_stdlib>\nkernel void main_(\n  metal::uint3 id\n, threadgroup type_5& tile\n) {\n"
    text += "    uint2 a = uint2(1u);\n    metal::float4 b = metal::float4(x, y);\n}\n"
    result = metal.to_cpp(text)
    assert "#include" not in result
    assert "uint2 a = check::construct<::uint2>(1u);" in result
    assert "metal::float4 b = check::construct<::float4>(x, y);" in result
    assert "static_assert(sizeof(type_5) <= 32768" in result


def test_tint_text_has_the_size_of_workgroups_and_enables_subgroups():
    text = "override wg: u32 = 64u;\nfn main(@builtin(subgroup_invocation_id) lane: u32) {}"
    assert tint.wgsl(Source("k", text, 96)).splitlines()[:2] == ["enable subgroups;", "const wg: u32 = 96u;"]
    assert tint.wgsl(PLAIN) == PLAIN.text


def test_offered_shader_model_5_has_neither_f16_nor_subgroups():
    subgroups = Source("subgroups", "@builtin(subgroup_invocation_id) lane: u32", 64)
    assert [targets.offered(source, "hlsl-fxc") for source in (PLAIN, HALF, subgroups)] == [True, False, False]
    assert all(targets.offered(source, name) for source in (PLAIN, HALF, subgroups) for name in ("msl", "hlsl-dxc"))


def test_translate_stored_results_are_used(monkeypatch):
    calls = []

    def translate(sources: list[Source], target: str) -> list[Result]:
        calls.append((target, len(sources)))
        return [Result(milliseconds=7)] * len(sources)

    monkeypatch.setattr(targets, "_translate", translate)
    sources = [Source("k", f"// {number}", 64) for number in range(targets.CHUNK + 1)]
    first = targets.translate(sources, ["msl"])
    assert calls == [("msl", targets.CHUNK), ("msl", 1)]
    assert targets.translate(sources, ["msl"]) == first and len(calls) == 2
    targets.translate([Source("k", "// 0", 128)], ["msl"])
    assert len(calls) == 3


def test_translate_interrupted_run_keeps_complete_chunks(monkeypatch):
    def translate(sources: list[Source], target: str) -> list[Result]:
        if len(sources) < targets.CHUNK:
            raise KeyboardInterrupt
        return [Result()] * len(sources)

    monkeypatch.setattr(targets, "_translate", translate)
    sources = [Source("k", f"// {number}", 64) for number in range(targets.CHUNK + 1)]
    with pytest.raises(KeyboardInterrupt):
        targets.translate(sources, ["msl"])
    monkeypatch.setattr(targets, "_translate", lambda sources, target: [Result()] * len(sources))
    counts: list[tuple[int, int]] = []
    targets.translate(sources, ["msl"], lambda done, total: counts.append((done, total)))
    assert counts == [(targets.CHUNK, targets.CHUNK + 1), (targets.CHUNK + 1, targets.CHUNK + 1)]


def test_compiler_that_ends_fails_one_kernel_and_compiles_the_others(tmp_path, monkeypatch):
    files = [tmp_path / f"{number}.hlsl-fxc" for number in range(3)]
    for file in files:
        file.write_text("void main() {}")
    calls = []

    def wine(arguments: list[str], folder: object, count: int) -> tuple[str, str]:
        calls.append(arguments[2:])
        first = "0.hlsl-fxc\t12\t34\t\n" if len(calls) == 1 else "2.hlsl-fxc\t1\t0\t80004005 an error\n"
        return first, "the compiler ended with status 5"

    monkeypatch.setattr(targets, "_wine", wine)
    results = targets._hlsl(files, "fxc", "cs_5_1")
    assert calls == [["0.hlsl-fxc", "1.hlsl-fxc", "2.hlsl-fxc"], ["2.hlsl-fxc"]]
    assert results[files[0]] == Result("", 12, 34, 14)
    assert results[files[1]].error == "the compiler ended with status 5"
    assert results[files[2]].error == "80004005 an error"


def test_json_has_kernels_failures_and_an_entry_per_target():
    results = {(PLAIN, "msl"): Result(text_bytes=9), (PLAIN, "hlsl-fxc"): Result("X3663"), (HALF, "msl"): Result()}
    printed = json.loads(json.dumps(command.as_json({PLAIN: ["none"], HALF: ["f16", "both"]}, results)))
    assert (printed["kernels"], printed["failures"]) == (2, 1)
    assert [(e["kernel"], e["target"], e["ok"], e["features"]) for e in printed["results"]] == [
        ("plain", "msl", True, ["none"]),
        ("plain", "hlsl-fxc", False, ["none"]),
        ("half", "msl", True, ["f16", "both"]),
    ]


def test_report_counts_rejected_and_slow_kernels():
    results = {(PLAIN, "hlsl-fxc"): Result("X3663", 5001), (HALF, "hlsl-dxc"): Result(milliseconds=5000, bytes=8)}
    text = command.report({PLAIN: [], HALF: []}, results)
    assert "| hlsl-fxc | 1 | 1 | 5 | 1 | 5.0 | 0 |" in text
    assert "| hlsl-dxc | 1 | 0 | 5 | 0 | 5.0 | 8 |" in text
    assert "hlsl-fxc  plain: X3663" in text


def test_files_of_wgsl_have_the_workgroup_of_their_first_line(tmp_path):
    for name, line in (("a.wgsl", "// workgroup 128"), ("b.wgsl", "fn f() {}")):
        (tmp_path / name).write_text(f"{line}\n")
    sources = kernels.of_files([tmp_path / "a.wgsl", tmp_path / "b.wgsl"])
    assert [source.workgroup for source in sources] == [128, 64]


def test_build_without_keyring_prints_the_package_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bench.debian.KEYRING", tmp_path / "missing.gpg")
    monkeypatch.setattr(sys, "argv", ["build"])
    assert build.main() == 1
    assert "missing.gpg is missing: apt-get install debian-archive-keyring" in capsys.readouterr().err
    assert build.missing() and not build.folder().exists()
