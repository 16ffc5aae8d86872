"""Run the tests that a change can have broken: `python -m tests.affected [--since REVISION] [--list]`.

A change is what differs from REVISION: by default from HEAD, or from HEAD's parent if nothing is uncommitted. A file of
`src/webpte` selects the unit tests that import its package, and the tests that `WITNESSES` names for it. An op also
selects its own cases. A document, the player and the CI scripts select tests of their own. The gate runs everything.
Other arguments go to pytest.
"""

from __future__ import annotations

import argparse
import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-q")
LIMITS = ("--maxfail=5", "--timeout=120")  # a bug that lets many tests hang is reported in minutes
EVERY_CASE = ""  # as `Selection.cases`: one case of every op

# package of src/webpte -> tests outside the unit tier that notice most of what can go wrong in it
WITNESSES: dict[str, tuple[str, ...]] = {
    "batch": ("contract/test_predictor.py", "contract/test_jobs.py"),
    "builder": (
        "contract/test_built_programs.py",
        "contract/test_build_weights.py",
        "contract/test_quantization.py",
        "gpu/test_build_quality.py",
        "contract/test_written_programs.py",
    ),
    "bundles": ("contract/test_bundles.py", "web/test_programs.py"),
    "checkpoints": ("contract/test_checkpoints.py", "contract/test_gguf_reader.py", "contract/test_gguf_files.py"),
    "cli": ("process", "gpu/test_wrong_commands.py"),
    "container": ("gpu/test_loading.py", "gpu/test_sources.py", "contract/test_programs.py"),
    "debug": ("contract/test_tools.py", "contract/test_compare.py", "contract/test_profile.py", "gpu/test_reports.py"),
    "device": ("gpu/test_recording.py", "gpu/test_loss.py", "gpu/test_steps.py", "gpu/test_memory.py"),
    "embed": ("contract/test_encoders.py",),
    "export": ("contract/test_export.py", "contract/test_quantization.py", "contract/test_speech.py"),
    "fusion": (
        "gpu/test_fusion_elementwise.py",
        "contract/test_fusion_attention.py",
        "contract/test_fusion_elementwise.py",
        "contract/test_fusion_linears.py",
    ),
    "graph": (
        "contract/test_programs.py",
        "contract/test_state_forms.py",
        "contract/test_kept_buffers.py",
        "gpu/test_xnnpack.py",
        "gpu/test_xnnpack_nodes.py",
    ),
    "llm": ("contract/test_llm.py", "contract/test_batching.py", "contract/test_steering.py"),
    "lowering": ("contract/test_programs.py", "contract/test_accepted_kernels.py"),
    "measure": ("contract/test_tools.py", "contract/test_evaluation.py", "gpu/test_bench_report.py"),
    "notebook": ("web/test_notebook.py",),
    "ops": ("contract/test_programs.py", "contract/test_accepted_kernels.py"),
    "plan": ("gpu/test_saved_plans.py", "gpu/test_steps.py", "contract/test_programs.py"),
    "runtime": ("gpu/test_calling.py", "gpu/test_steps.py", "gpu/test_forks.py", "contract/test_state.py"),
    "serve": (
        "process/test_supervisor.py",
        "serving/test_chats.py",
        "serving/test_endpoints.py",
        "serving/test_errors.py",
        "serving/test_structure.py",
    ),
    "speech": ("contract/test_speech.py",),
    "vision": ("contract/test_vision.py",),
    "wgsl": ("contract/test_programs.py", "contract/test_accepted_kernels.py"),
}
MAPS = ("unit/test_imports.py", "unit/test_private_members.py", "unit/test_public_face.py")  # of all modules
COMPUTE = {"device", "lowering", "plan", "wgsl"}  # a change there can break the kernel of any op
PLAYER = ("web/test_player.py", "web/test_language.py", "web/test_programs.py", "web/test_chat.py")
DOCUMENTS = ("project/test_docs.py",)
PACKAGING = ("project/test_gate_status.py", "project/test_release.py", "project/test_package.py")


@dataclass
class Selection:
    """The tests, cases, pages and commands to run."""

    tests: set[str] = field(default_factory=set)  # paths and node ids, from the repository's root
    cases: set[str] = field(default_factory=set)  # modules of tests/cases, or EVERY_CASE
    pages: set[str] = field(default_factory=set)  # documents whose blocks run
    commands: list[tuple[str, ...]] = field(default_factory=list)  # that are not pytest's

    def add(self, *tests: str) -> None:
        self.tests |= {f"tests/{test}" for test in tests}

    def pytest(self) -> list[str]:
        """Arguments of pytest; empty where it has nothing to do."""
        if not self.cases:
            return sorted(self.tests)
        chosen = ["--one-case-per-op"] if EVERY_CASE in self.cases else [f"--cases={','.join(sorted(self.cases))}"]
        return [*chosen, *sorted(self.tests | {"tests/gpu/test_cases.py"})]


def select(changed: Iterable[str]) -> Selection:
    selection = Selection()
    for name in changed:
        _add(selection, PurePosixPath(name))
    return selection


def _add(selection: Selection, path: PurePosixPath) -> None:
    match path.parts:
        case ("src", "webpte", "ops", family, name):
            own = f"{family}.{PurePosixPath(name).stem}"
            exists = (ROOT / "tests" / "cases" / family / f"{PurePosixPath(name).stem}.py").exists()
            selection.cases.add(own if exists else family)
            selection.add(*unit_tests("ops", "lowering"), *WITNESSES["ops"])
        case ("src", "webpte", package, *_):
            if package in COMPUTE:
                selection.cases.add(EVERY_CASE)
            package = package.removesuffix(".py")
            selection.add(*unit_tests(package), *WITNESSES.get(package, ("process",)))
        case ("web", *_):
            selection.commands.append(("npm", "--prefix", "web", "run", "--silent", "check"))
            selection.add(*PLAYER)
        case ("docs", *_) | ("README.md" | "CHANGELOG.md" | "CONTRIBUTING.md" | "SECURITY.md",):
            selection.add(*DOCUMENTS)
            if path.suffix in {".md", ".ipynb"}:
                selection.pages.add(str(path))
        case ("examples", *_):
            selection.add("project/test_examples.py")
        case ("tests", "cases", family, name):
            selection.cases.add(f"{family}.{PurePosixPath(name).stem}")
        case ("tests", *_) if path.suffix == ".py":
            selection.tests |= {str(test) for test in importers(path)}
        case (".ci" | ".github" | "pyproject.toml", *_):
            selection.add(*PACKAGING)
        case ("bench", "compilers", *_):
            selection.add("unit/test_compiler_reports.py", "unit/test_compiler_parts.py")
            selection.add("contract/test_compiler_budgets.py")
            selection.add("project/test_figures.py")
        case ("bench", "translators", *_):
            selection.add("unit/test_translator_parts.py", "contract/test_translators.py")
            selection.add("contract/test_accepted_kernels.py")
        case ("bench", "debian.py"):
            selection.add("unit/test_translator_parts.py", "unit/test_compiler_parts.py")
        case ("bench", *_):
            selection.add("project/test_bench_harness.py", "project/test_bench_against.py", "gpu/test_memory_trace.py")


def runnable(names: set[str]) -> list[str]:
    """Return the tests of those documents that have blocks or cells to run."""
    if not names:
        return []
    from tests.support.harness import notebooks, pages

    results = {page.relative_to(pages.ROOT).as_posix() for page in pages.runnable()}
    books = [name for name in notebooks.names() if f"docs/notebooks/{name}" in names]
    return [
        *(f"tests/project/test_pages.py::test_page[{name}]" for name in sorted(names & results)),
        *(f"tests/project/test_notebooks.py::test_notebook_runs_with_stored_outputs[{name}]" for name in books),
    ]


def importers(path: PurePosixPath) -> list[PurePosixPath]:
    """The test files that a file of tests/ is, or is imported by, also through others."""
    imports = _imports()
    reached, new = {ROOT / path}, {ROOT / path}
    while new:
        new = {file for file, results in imports.items() if results & new} - reached
        reached |= new
    results = {file for file in reached if file.name.startswith("test_") and file.exists()}
    if path.name == "conftest.py":
        results |= set((ROOT / path).parent.rglob("test_*.py"))
    return sorted(PurePosixPath(file.relative_to(ROOT).as_posix()) for file in results)


@functools.cache
def _imports() -> dict[Path, set[Path]]:
    return {file: _imported(file) for file in (ROOT / "tests").rglob("*.py")}


def _imported(file: Path) -> set[Path]:
    """Files of tests/ that a file names in its imports."""
    results = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else ROOT
            module = base.joinpath(*(node.module or "").split("."))
            results |= {module.with_suffix(".py"), module / "__init__.py"}
            results |= {module / f"{alias.name}.py" for alias in node.names}
        elif isinstance(node, ast.Import):
            results |= {ROOT.joinpath(*alias.name.split(".")).with_suffix(".py") for alias in node.names}
    return {path for path in results if path.is_relative_to(ROOT / "tests")}


def changes(since: str | None) -> list[str]:
    """Files that differ from a revision; deleted ones are left out."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()

    new = git("ls-files", "--others", "--exclude-standard")
    if since is None:
        edited = git("diff", "--name-only", "--diff-filter=d", "HEAD")
        return edited + new if edited or new else git("diff", "--name-only", "--diff-filter=d", "HEAD~1")
    return git("diff", "--name-only", "--diff-filter=d", since) + new


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.affected", description=__doc__, allow_abbrev=False)
    parser.add_argument("--since", metavar="REVISION", help="what to compare with")
    parser.add_argument("--list", action="store_true", help="print the selection and run nothing")
    parser.add_argument("--fast", action="store_true", help="only tests of the unit tier that name a changed module")
    options, more = parser.parse_known_args(arguments)
    changed = changes(options.since)
    selection = Selection(tests=set(fast(changed))) if options.fast else select(changed)
    commands = list(dict.fromkeys(selection.commands))
    if pages := runnable(selection.pages):  # also those that the gate leaves to the nightly run
        commands.append((*PYTEST, "-m", "slow or not slow", *pages))
    if chosen := selection.pytest():
        commands.append((*PYTEST, "-n", "2", *LIMITS, *more, *chosen))
    print(f"{len(changed)} changed files", flush=True)
    for command in commands:
        print(" ".join(command), flush=True)
    if options.list:
        return 0
    return max((subprocess.run(command, cwd=ROOT).returncode for command in commands), default=0)


def fast(changed: Iterable[str]) -> list[str]:
    """Test files of the unit tier that are changed or import a changed module of src/webpte by its name."""
    modules = {name.removeprefix("src/").removesuffix(".py").replace("/", ".") for name in changed}
    packages = {module.removesuffix(".__init__") for module in modules if module.startswith("webpte.")}
    names = {f"tests/{name}" for name, imported in _unit_imports().items() if packages & imported}
    return sorted(names | {name for name in changed if name.startswith("tests/unit/test_")})


def unit_tests(*packages: str) -> list[str]:
    """Test files of the unit tier that import a module of these packages, and those about all modules."""
    prefixes = tuple(f"webpte.{package}" for package in packages)
    chosen = {name for name, imported in _unit_imports().items() if any(each.startswith(prefixes) for each in imported)}
    return sorted(chosen | set(MAPS))


@functools.cache
def _unit_imports() -> dict[str, set[str]]:
    files = (ROOT / "tests" / "unit").glob("test_*.py")
    return {file.relative_to(ROOT / "tests").as_posix(): _named(file) for file in files}


def _named(file: Path) -> set[str]:
    """Modules of webpte that a test file names in its imports."""
    results = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            results |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            results |= {alias.name for alias in node.names}
    return results


if __name__ == "__main__":
    sys.exit(main())
