"""Run the README and the pages of the documentation, and write their outputs.

python -m tests.support.harness.run_pages [PAGE...]            # show where a page shows something else than it prints
python -m tests.support.harness.run_pages --write [PAGE...]    # and write it there

What needs torch runs with this clone's code; the rest where `pip install webpte` was all that was done.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.support.harness import pages
from tests.support.models import example_models

ROOT = pages.ROOT
NEEDS_TORCH = re.compile(r"\bimport torch\b|\bwebpte\.export\b|\bwebpte export\b")
COLUMNS = "100"
TIMEOUT = 3600  # seconds: an export on a busy machine
PRINTED = ".printed"
_NEXT_PART = "\x1e"  # printed between the blocks of one file, so that each has its own output


def first_program(folder: Path) -> None:
    shutil.copy(example_models.first_program() / "model.pte", folder)


def download(folder: Path) -> None:
    shutil.copy(ROOT / "docs" / "files" / "model.pte", folder)


def checkpoint(folder: Path) -> None:
    from tests.support.models.smollm import gguf

    (folder / "smollm2.gguf").symlink_to(gguf())


def encoder(folder: Path) -> None:
    shutil.copytree(example_models.semantic_search(), folder, dirs_exist_ok=True)


def whisper(folder: Path) -> None:
    shutil.copytree(example_models.real_whisper(), folder, dirs_exist_ok=True)


def tasks(folder: Path) -> None:
    encoder(folder)
    whisper(folder)


def demo(folder: Path) -> None:
    for file in (ROOT / "docs" / "demo").glob("model.*"):
        shutil.copy(file, folder / file.name.replace("model", "demo", 1))


def every_runtime(folder: Path) -> None:
    for make in (first_program, demo, checkpoint):
        make(folder)


# What a reader has at hand when a page begins.
AT_HAND: dict[str, Callable[[Path], None]] = {
    "README.md": download,
    "docs/batch.md": encoder,
    "docs/coming-from.md": every_runtime,
    "docs/debugging.md": first_program,
    "docs/index.md": download,
    "docs/llm-export.md": checkpoint,
    "docs/performance-guide.md": first_program,
    "docs/run.md": first_program,
    "docs/tasks.md": tasks,
}


@contextmanager
def hub(folder: Path) -> Iterator[dict[str, str]]:
    """Serve the repository that `smollm2` names, with the weights of the GGUF file of the tests; empty caches."""
    from docs.make_chat import REPOSITORY
    from docs.make_chat import checkpoint as as_repository
    from tests.support.harness.hub_server import hub_server
    from tests.support.models.smollm import gguf

    with hub_server() as server:
        server.add(REPOSITORY, as_repository(gguf()))
        caches = {name: str(folder / ".caches" / name) for name in ("HF_HUB_CACHE", "XDG_CACHE_HOME")}
        yield {"HF_ENDPOINT": server.address, **caches}


# Pages that begin with the program of this page, and do not export it again.
EXPORT = ROOT / "docs" / "llm-export.md"
EXPORTED = ("docs/llm.md", "docs/states.md")
# What answers while the blocks of a page run: variables that lead to it.
SERVICES: dict[str, Callable[[Path], AbstractContextManager[dict[str, str]]]] = {"README.md": hub}


@dataclass(frozen=True)
class Environments:
    """Variables of two environments: a new one where `pip install webpte` was all that was done, and one with torch."""

    fresh: Mapping[str, str]
    with_torch: Mapping[str, str]

    def with_variables(self, variables: Mapping[str, str]) -> Environments:
        return Environments({**self.fresh, **variables}, {**self.with_torch, **variables})

    def of(self, step: pages.Step) -> Mapping[str, str]:
        return self.with_torch if NEEDS_TORCH.search(step.body) else self.fresh


@dataclass(frozen=True)
class Finding:
    """The output of a block; `real` unless a stand-in printed it."""

    part: pages.Part
    printed: str
    real: bool = True

    def problem(self, page: Path) -> str | None:
        where = f"{page.relative_to(ROOT)}:{self.part.block.line}"
        if not self.real:
            return None
        if self.part.shown is None:
            return f"{where} prints what the page does not show:\n{self.printed}" if self.printed.strip() else None
        if pages.agrees(self.printed, self.part.shown):
            return None
        return f"{where}: shown is\n{self.part.shown.body}\nbut it printed\n{self.printed}"


def environments(folder: Path) -> Environments:
    """Builds the wheel and installs it into a new environment in `folder`."""
    dist, fresh = folder / "dist", folder / "fresh"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    venv.create(fresh, with_pip=True)
    result = " ".join(filter(None, [str(dist), os.environ.get("PIP_FIND_LINKS")]))
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    inherited |= {"COLUMNS": COLUMNS, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    paths = {"PATH": f"{fresh / 'bin'}{os.pathsep}{os.environ['PATH']}", "PIP_FIND_LINKS": result}
    run(["pip", "install", "-q", "webpte"], folder, inherited | paths)
    beside = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return Environments(inherited | paths, inherited | beside | {"PYTHONPATH": str(ROOT / "src")})


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str], *, fails: bool = False) -> str:
    """Return what a command printed; with its errors, if it is one that fails."""
    errors = subprocess.STDOUT if fails else subprocess.PIPE
    done = subprocess.run(
        command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
        timeout=TIMEOUT,
    )  # fmt: skip
    if (done.returncode != 0) is not fails:
        raise AssertionError(f"{' '.join(command)} gave {done.returncode}\n{done.stdout}{done.stderr or ''}")
    return done.stdout


def serve(command: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Return the line with the address of a server, which is shown with the default port; end the server."""
    port = {"WEBPTE_SERVE_PORT": "0"}  # a free one
    with subprocess.Popen(
        ["sh", "-e", "-c", f"exec {command.strip()}"], cwd=cwd, env={**env, **port}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            if re.match(r"[a-z ]+ http://", line):
                process.terminate()
                return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", line)
    raise AssertionError(f"{command.strip()} ended without an address:\n{''.join(lines)}")


def exports_a_checkpoint(step: pages.Step) -> bool:
    return step.language == "sh" and re.match(r"webpte export \S+\.gguf ", step.body) is not None


def findings(page: Path, folder: Path, result: Environments, *, stand_in: bool = False) -> Iterator[Finding]:
    """Run a page in `folder`; with `stand_in`, with a tiny model instead of the one that the page exports."""
    name = page.relative_to(ROOT).as_posix()
    if (at_hand := AT_HAND.get(name)) is not None:
        at_hand(folder)
    real = True
    if name in EXPORTED:
        real = not stand_in
        link_program(folder, export_command(), result.fresh, real)
    with SERVICES[name](folder) if name in SERVICES else nullcontext({}) as variables:
        environment = result.with_variables(variables)
        for step in pages.steps(page):
            real = real and not (stand_in and exports_a_checkpoint(step))
            for part, printed in zip(step.parts, run_step(step, folder, environment.of(step), real), strict=True):
                yield Finding(part, "" if part.block.mark == "quiet" else printed, real)


def run_step(step: pages.Step, folder: Path, environment: Mapping[str, str], real: bool = True) -> list[str]:
    """Run a step; return the output of each part."""
    if exports_a_checkpoint(step):
        return [link_program(folder, step.body, environment, real)]
    if step.parts[0].block.mark == "serves":
        return [serve(step.body, folder, environment)]
    if step.language == "sh":
        return [run(["sh", "-e", "-c", step.body], folder, environment, fails=step.fails)]
    (folder / step.name).write_text(step.body)
    mark = f"print({_NEXT_PART!r}, flush=True)\n"
    running = folder / f".{step.name}"  # beside the file itself, for what it opens and imports
    running.write_text(mark.join(part.block.body for part in step.parts))
    printed = run(["python", running.name], folder, environment, fails=step.fails)
    running.unlink()
    return printed.split(f"{_NEXT_PART}\n")


def needs_a_checkpoint(page: Path) -> bool:
    """Return whether a page exports a language model, or begins with one that another page exports."""
    name = page.relative_to(ROOT).as_posix()
    return name in EXPORTED or any(map(exports_a_checkpoint, pages.steps(page)))


def export_command() -> str:
    return next(step.body for step in pages.steps(EXPORT) if exports_a_checkpoint(step))


def link_program(folder: Path, commands: str, environment: Mapping[str, str], real: bool) -> str:
    """Put the program of an export into a folder, or a tiny one; return what the export printed."""
    result = real_model(commands, environment) if real else example_models.talker()
    for file in result.iterdir():
        (folder / file.name).symlink_to(file)
    return (result / PRINTED).read_text() if real else ""


def real_model(commands: str, environment: Mapping[str, str]) -> Path:
    """The folder in which commands exported SmolLM2, from the cache, with what they printed: it takes ten minutes."""

    def make(folder: Path) -> None:
        checkpoint(folder)
        (folder / PRINTED).write_text(run(["sh", "-e", "-c", commands], folder, environment))
        (folder / "smollm2.gguf").unlink()

    return example_models.page_export(commands, make)


# ---------------------------------------------------------------- writing


def rewritten(text: str, actual: Sequence[Finding]) -> str:
    """The page with what was printed. What only varies as it may is left as it is."""
    for finding in reversed(actual):
        part, shown = finding.part, finding.part.shown
        body = pages.trimmed(finding.printed)
        if shown is None and body:
            _, end = part.block.span
            text = f"{text[:end]}\n\n```output\n{body}\n```{text[end:]}"
        elif shown is not None and not pages.agrees(finding.printed, shown):
            start, end = shown.span
            fence = "```output varies" if shown.mark else "```output"
            text = f"{text[:start]}{fence}\n{body}\n```{text[end:]}"
    return text


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.harness.run_pages", description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="such as docs/llm.md; all that run")
    parser.add_argument("--write", action="store_true", help="write the output blocks")
    chosen = parser.parse_args(arguments)
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        actual = environments(Path(name))
        for page in [path.resolve() for path in chosen.pages] or pages.runnable():
            text = page.read_text(encoding="utf-8")
            with tempfile.TemporaryDirectory() as folder:
                results = list(findings(page, Path(folder), actual))
            problems = list(filter(None, (result.problem(page) for result in results)))
            print(f"{page.relative_to(ROOT)}: {len(problems)} of {len(results)} blocks differ", flush=True)
            if chosen.write and page.read_text(encoding="utf-8") != text:
                raise SystemExit(f"{page} was changed while it ran; run it again")
            if chosen.write:
                page.write_text(rewritten(text, results), encoding="utf-8")
            else:
                print("\n".join(problems))
            wrong += len(problems)
    return int(wrong > 0 and not chosen.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
