"""Bundles whose hashes are all correct and whose kernels, plans or files are not what a bundle writer makes.

`python -m tests.support.harness.hostile_bundles CASE ...` opens and runs each on the adapter, and prints what came of
it: a process that a driver could end.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.studies.fuzz.bundled import document_of, honest_bundle, replace_file, write_manifest

X = np.arange(35, dtype=np.float32).reshape(5, 7) / 8
SUM = X + np.arange(35, dtype=np.float32).reshape(5, 7)
# What the kernels below can read within their buffers, and the numbers that they write.
OWN = {float(a + b) for a in (0, *X.flat) for b in (0, *range(35))} | {0.0, 1.0, 3.0, 7.0}
HEAD = """
override wg: u32 = 64u;
struct Params { threads: u32, count: u32, each: u32 }
@group(0) @binding(0) var<uniform> p: Params;
@group(1) @binding(0) var<storage, read> a: array<f32>;
@group(1) @binding(1) var<storage, read> b: array<f32>;
@group(1) @binding(2) var<storage, read_write> y: array<f32>;
"""
MAIN = "@compute @workgroup_size(wg) fn main(@builtin(local_invocation_index) i: u32) {"
# Reads and writes what no binding has: WebGPU defines it to stay within the buffer, or to read 0.
OUT_OF_BOUNDS = f"{HEAD} {MAIN} y[i + 1000000000u] = 7.0; y[i % 36u] = a[i + 1000000u] + b[4294967295u - i]; }}"
NEGATIVE = f"{HEAD} {MAIN} let at = i32(i) - 2000000; y[i % 36u] = a[at]; y[at] = 3.0; }}"
PRIVATE = f"{HEAD} var<private> t: array<f32, 8>; {MAIN} t[i * 1000u] = 1.0; y[i % 36u] = t[p.count * 1000000u + i]; }}"
SHARED = f"{HEAD} var<workgroup> t: array<f32, 8>; {MAIN} y[i % 36u] = t[i * 100000u]; }}"
ENDLESS = f"{HEAD} {MAIN} var n = 1u; loop {{ n += p.count; if (n == 0u && n == 1u) {{ break; }} y[0] = f32(n); }} }}"
PRIVATE_MEMORY = f"{HEAD} {MAIN} var t: array<f32, 1000000>; t[i] = 1.0; y[i % 36u] = t[p.count]; }}"
KERNELS: dict[str, str] = {
    "out_of_bounds": OUT_OF_BOUNDS,
    "negative_index": NEGATIVE,
    "private_index": PRIVATE,
    "shared_index": SHARED,
    "syntax": f"{HEAD} {MAIN} y[i] = ; }}",
    "empty": " ",
    "no_entry": HEAD,
    "vertex": "@vertex fn main() -> @builtin(position) vec4<f32> { return vec4<f32>(); }",
    "recursion": f"{HEAD} fn f(x: u32) -> u32 {{ return f(x); }} {MAIN} y[i] = f32(f(i)); }}",
    "many_groups": HEAD.replace("@group(1) @binding(2)", "@group(7) @binding(900)") + MAIN + " y[i] = 1.0; }",
    "other_bindings": HEAD.replace("binding(2)", "binding(9)") + MAIN + " y[i % 36u] = 1.0; }",
    "writes_an_input": HEAD.replace("storage, read>", "storage, read_write>") + MAIN + " a[i % 36u] = 1.0; }",
    "binding_of_another_kind": HEAD.replace("var<storage, read> a: array<f32>", "var<uniform> a: vec4<f32>")
    + MAIN
    + " y[i % 36u] = a.x; }",
    "a_texture": HEAD.replace("var<storage, read> a: array<f32>", "var a: texture_2d<f32>")
    + MAIN
    + " y[i % 36u] = textureLoad(a, vec2<i32>(0), 0).x; }",
    "huge_workgroup": f"{HEAD} @compute @workgroup_size(65535, 65535, 64) fn main() {{ y[0] = 1.0; }}",
    "zero_workgroup": f"{HEAD} @compute @workgroup_size(0) fn main() {{ y[0] = 1.0; }}",
    "much_shared_memory": f"{HEAD} var<workgroup> t: array<f32, 100000000>; {MAIN} t[i] = 1.0; y[i % 36u] = t[i]; }}",
    "huge_array_type": f"{HEAD} alias t = array<array<array<f32, 65535>, 65535>, 65535>;"
    f"{MAIN} var v: t; y[0] = v[i][i][i]; }}",
    "nested_parentheses": f"{HEAD} {MAIN} y[i % 36u] = {'(' * 5000}1.0{')' * 5000}; }}",
    "nested_blocks": f"{HEAD} {MAIN} {'{' * 3000}{'}' * 3000} }}",
    "nested_ifs": f"{HEAD} {MAIN} {'if (i > 0u) {' * 300} y[0] = 1.0; {'}' * 300} }}",
    "nested_types": f"{HEAD} alias t = {'array<' * 500}f32{', 1>' * 500}; {MAIN} y[0] = 1.0; }}",
    "long_expression": f"{HEAD} {MAIN} y[i % 36u] = 1.0{' + a[i]' * 20000}; }}",
    "unary_operators": f"{HEAD} {MAIN} y[i % 36u] = {'-' * 20000}1.0; }}",
    "most_operators": f"{HEAD} {MAIN} let x = a[0]; y[i % 36u] = x{'+x' * 2030}; }}",  # within the limits
    "most_unary_operators": f"{HEAD} {MAIN} let x = true; y[0] = select(0.0, 1.0, {'!' * 4000}x); }}",
    "most_parentheses": f"{HEAD} {MAIN} y[i % 36u] = {'(' * 60}1.0{')' * 60}; }}",
    "else_ifs": f"{HEAD} {MAIN} if (i == 0u) {{ }} {'else if (i == 1u) { }' * 5000} }}",
    "most_else_ifs": f"{HEAD} {MAIN} if (i == 0u) {{ }} {'else if (i == 1u) { }' * 250} }}",
    "most_nested_types": f"{HEAD} alias t = {'array<' * 450}f32{',1>' * 450}; {MAIN} y[0] = 1.0; }}",
    "operators_beside_comments": f"{HEAD} {MAIN} y[i % 36u] = 1.0{' + /*;*/ a[i]' * 20000}; }}",
    "many_functions": HEAD + "".join(f"fn f{n}(x: f32) -> f32 {{ return x + 1.0; }}" for n in range(5000)) + MAIN + "}",
    "calls_that_double": HEAD
    + "fn f0(x: f32) -> f32 { return x + 1.0; }"
    + "".join(f"fn f{n}(x: f32) -> f32 {{ return f{n - 1}(x) + f{n - 1}(x + 1.0); }}" for n in range(1, 12))
    + MAIN
    + " y[i % 36u] = f11(a[i % 36u]); }",
    "long_text": f"{HEAD} // {'x' * (2 << 20)}\n{MAIN} y[i % 36u] = 1.0; }}",
    "division_by_zero": f"{HEAD} {MAIN} let z = p.count - p.count; y[i % 36u] = f32(i / z) + f32(i32(i) % i32(z)); }}",
    "override_division": f"override wg: u32 = 64u; override z: u32 = 1u / (wg - wg); {MAIN} }}",
    "pointers": f"{HEAD} fn f(q: ptr<function, array<f32, 4>>, i: u32) -> f32 {{ return (*q)[i]; }}"
    f"{MAIN} var t: array<f32, 4>; y[i % 36u] = f(&t, i * 99999u); }}",
}


def _planned(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Return a change of every plan."""

    def write(folder: Path) -> None:
        document = document_of(folder)
        for sha256, entry in list(document["files"].items()):
            if entry["type"] == "plan":
                plan = json.loads((folder / entry["path"]).read_text())
                change(plan)
                replace_file(folder, document, sha256, json.dumps(plan).encode())
        write_manifest(folder, json.dumps(document))

    return write


def _kernel(text: str) -> Callable[[Path], None]:
    """Another text of the only kernel."""

    def write(folder: Path) -> None:
        document = document_of(folder)
        (old,) = [sha256 for sha256, entry in document["files"].items() if entry["type"] == "wgsl"]
        replace_file(folder, document, old, text.encode())
        write_manifest(folder, json.dumps(document))
        hashed = hashlib.sha256(text.encode()).hexdigest()
        _planned(lambda plan: plan["kernels"][0].update({"sha256": hashed, "text": [0, len(text)]}))(folder)

    return write


def _linked(target: str | None) -> Callable[[Path], None]:
    """Return a link, or a pipe, in the place of the weights."""

    def write(folder: Path) -> None:
        (path,) = (folder / "files").glob("*.bin")
        path.unlink()
        os.mkfifo(path) if target is None else path.symlink_to(path.name if target == "itself" else target)

    return write


def _link_folder(folder: Path) -> None:
    shutil.rmtree(folder / "files")
    (folder / "files").symlink_to("/etc")


def _link_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").symlink_to("/etc/passwd")


def _dispatch(change: Callable[[list[Any]], None]) -> Callable[[Path], None]:
    return _planned(lambda plan: change(plan["schedules"][0]["dispatches"][0]))


def _set(*way: Any, value: Any) -> Callable[[Any], None]:
    def change(inner: Any) -> None:
        for step in way[:-1]:
            inner = inner[step]
        inner[way[-1]] = value

    return change


_LONG_COUNT = base64.b64encode(struct.pack("<IIII", 1 << 31, 1 << 31, 1 << 31, 0)).decode()
CASES: dict[str, Callable[[Path], None]] = {
    **{name: _kernel(text) for name, text in KERNELS.items()},
    "weights_from_passwd": _linked("/etc/passwd"),
    "weights_from_a_device": _linked("/dev/zero"),
    "weights_from_a_loop": _linked("itself"),
    "weights_from_a_pipe": _linked(None),
    "weights_from_nowhere": _linked("../../../nothing"),
    "files_from_etc": _link_folder,
    "manifest_from_passwd": _link_manifest,
    "binding_beyond_its_buffer": _dispatch(_set(1, 0, 2, value=1 << 20)),
    "binding_offset_beyond": _dispatch(_set(1, 0, 1, value=1 << 30)),
    "binding_offset_unaligned": _dispatch(_set(1, 0, 1, value=4)),
    "binding_of_no_buffer": _dispatch(_set(1, 0, 0, value=99)),
    "binding_is_missing": _dispatch(lambda dispatch: dispatch[1].pop()),
    "writes_a_constant": _dispatch(_set(1, 2, 0, value=0)),
    "groups_beyond_the_limit": _dispatch(_set(3, value=[1 << 20, 1 << 20, 1 << 20])),
    "groups_of_zero": _dispatch(_set(3, value=[0, 0, 0])),
    "kernel_of_no_number": _dispatch(_set(0, value=7)),
    "large_parameters": _planned(_set("parameters", 0, value=_LONG_COUNT)),
    "short_parameters": _planned(_set("parameters", 0, value="AAAA")),
    "workgroup_of_a_million": _planned(_set("kernels", 0, "workgroup", value=1 << 20)),
    "constant_beyond_its_file": _planned(_set("buffers", 0, "fill", "spans", 0, value=[0, 100, 1 << 20])),
    "constant_before_its_file": _planned(_set("buffers", 0, "fill", "spans", 0, value=[0, -4, 140])),
    "buffer_of_a_terabyte": _planned(_set("buffers", 1, "bytes", value=1 << 40)),
    "output_of_other_dims": _planned(_set("values", "1", "dims", value=[5, 700])),
    "output_in_no_buffer": _planned(_set("value_buffers", "1", value=55)),
    "input_in_a_constant": _planned(_set("value_buffers", "0", value=0)),
}


# These keep the compiler or the device busy for longer than anyone waits.
ENDLESS_CASES = {"endless_loop": _kernel(ENDLESS), "much_private_memory": _kernel(PRIVATE_MEMORY)}


def make(case: str, folder: Path) -> Path:
    """Write the bundle of a case."""
    shutil.copytree(honest_bundle(), folder)
    if not case.startswith("honest"):
        (CASES | ENDLESS_CASES)[case](folder)
    return folder


def play(folder: Path) -> str:
    """Return what came of it: "refused", or the values that were returned, in words."""
    try:
        with webpte.load(folder) as bundle:
            values = bundle.method()(X)
    except webpte.Error as error:
        return f"refused {error.code} {' '.join(str(error).split())[:160]}"
    (result,) = values if isinstance(values, (tuple, list)) else (values,)
    kinds = {
        "the sum": bool(np.array_equal(result, SUM)),
        "its own numbers": {*result.flat} <= OWN,
        "numbers": bool(np.isfinite(result).all()),
    }
    return f"returned {next((kind for kind, holds in kinds.items() if holds), 'not numbers')}"


def main(names: list[str]) -> None:
    root = honest_bundle().parent
    for name in names:
        print(f"{name}:", end=" ", flush=True)  # the one that reads it knows where a process ended
        print(play(make(name, root / name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["honest", *CASES])
