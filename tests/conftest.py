"""Tiers: the folder of a test decides what the test may need.

``tests/unit`` needs only the development packages and may not start processes or open sockets (its ``conftest.py``
enforces it). ``tests/process`` starts processes. ``tests/gpu`` needs an adapter. ``tests/contract`` and
``tests/serving`` need torch and ExecuTorch. ``tests/web`` needs an adapter and Chromium. ``tests/project`` checks
documents, packaging and CI.
If a requirement is missing, its tier is skipped. With ``CI=true`` a missing requirement is an error.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.harness.configurations import CONFIGURATIONS, Configuration

TESTS = Path(__file__).parent
CI = os.environ.get("CI", "").lower() in {"1", "true"}


def _prepare_environment() -> None:
    """What the Vulkan loader and Mesa read once, when wgpu is first imported."""
    if "XDG_RUNTIME_DIR" not in os.environ:
        runtime = tempfile.mkdtemp(prefix="webpte-tests-")  # readable by this user only, which is what the drivers want
        atexit.register(shutil.rmtree, runtime, ignore_errors=True)
        os.environ["XDG_RUNTIME_DIR"] = runtime
    if "MESA_SHADER_CACHE_DIR" not in os.environ:
        # Without it lavapipe compiles every kernel again in every process, at a quarter of a second each.
        mesa = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webpte" / "mesa"
        mesa.mkdir(parents=True, exist_ok=True)
        os.environ["MESA_SHADER_CACHE_DIR"] = str(mesa)


_prepare_environment()

# Machines differ too much in speed for a deadline; in CI the same commit must give the same answer twice.
hypothesis.settings.register_profile("webpte", deadline=None, derandomize=CI, max_examples=40)
hypothesis.settings.register_profile("night", deadline=None, max_examples=500)  # --hypothesis-profile=night
hypothesis.settings.load_profile("webpte")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--configuration", choices=sorted(CONFIGURATIONS), default="usual", help="the device to run on")
    group = parser.getgroup("op cases", "tests/gpu/test_cases.py")
    group.addoption("--one-case-per-op", action="store_true", help="run one case per op and kernel")
    group.addoption("--one-case-per-file", action="store_true", help="run one case per module and kernel")
    group.addoption("--every-case", action="store_true", help="run also the cases of an op that the gate leaves out")
    group.addoption("--cases", default="", metavar="NAMES", help="run cases of these modules: norm, matmul.linear")


def pytest_configure(config: pytest.Config) -> None:
    chosen = _configuration(config)
    if chosen.missing:
        raise pytest.UsageError(chosen.missing)
    chosen.apply()  # before a test module imports wgpu


def _configuration(config: pytest.Config) -> Configuration:
    return CONFIGURATIONS[config.getoption("configuration")]


@pytest.fixture(autouse=True)
def _pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bursts a generation takes as many tokens per submit as it ever would."""
    if _configuration(request.config).bursts:
        monkeypatch.setattr("webpte.llm.engine.scheduler.STREAM_SECONDS", 1e9)


_ASK_ADAPTER = """
import json, wgpu
print(json.dumps(dict(wgpu.gpu.request_adapter_sync(power_preference="high-performance").info)))
"""


@functools.cache
def adapter() -> dict[str, str]:
    """Return what wgpu says about the adapter, or why there is none, under ``error``.

    Asked in another process: a broken driver may abort it, and the first adapter fixes the instance's settings.
    """
    asked = subprocess.run([sys.executable, "-c", _ASK_ADAPTER], capture_output=True, text=True, timeout=120)
    if asked.returncode != 0:
        return {"error": (asked.stderr.splitlines() or [f"exit code {asked.returncode}"])[-1]}
    info: dict[str, str] = json.loads(asked.stdout.splitlines()[-1])
    return info


def _gpu_missing() -> str | None:
    backend = adapter().get("backend_type")
    if backend is None:
        return f"no GPU adapter ({adapter()['error']}); on Debian install libvulkan1 and mesa-vulkan-drivers"
    # A wrong VK_ICD_FILENAMES makes wgpu fall back to OpenGL without a word.
    if backend == "OpenGL" or (CI and backend != "Vulkan"):
        return f"the adapter is {backend}, not Vulkan: {adapter().get('device')}"
    return None


@functools.cache
def _export_missing() -> str | None:
    absent = [name for name in ("torch", "executorch") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)}; pip install 'webpte[export]'" if absent else None


@functools.cache
def _web_missing() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "not installed: playwright; pip install --group dev"
    from tests.support.harness.browser import chromium_path

    return _gpu_missing() or (None if chromium_path() else "there is no chromium; on Debian: apt install chromium")


TIERS: dict[str, Callable[[], str | None]] = {
    "unit": lambda: None,
    "process": lambda: None,
    "project": lambda: None,
    "gpu": _gpu_missing,
    "contract": _export_missing,
    "serving": _export_missing,
    "web": _web_missing,
}


# With several workers the tiers of long files start first, so that no worker is left with one at the end.
LONGEST_FIRST = ("serving", "contract", "web", "project", "process", "gpu", "unit")


def _tier(path: Path) -> str:
    tier = path.relative_to(TESTS).parts[0]
    if tier not in TIERS:
        raise pytest.UsageError(f"{path}: a test belongs in one of {', '.join(f'tests/{name}' for name in TIERS)}")
    return tier


_EXPORT_TIMEOUT_SECONDS = 1200  # with a cold cache any test may be the first to export


class _Module(pytest.Module):
    """A test module that is imported only if its tier can run, so that it may ``import torch`` at its top."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        tier = _tier(self.path)
        if reason := TIERS[tier]():
            if CI:
                raise self.CollectError(f"CI must run every tier, but tests/{tier} cannot run: {reason}")
            pytest.skip(reason, allow_module_level=True)
        return super().collect()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return _Module.from_parent(parent, path=module_path)


@pytest.hookimpl(trylast=True)  # the order must be the last word: it decides what a worker gets first
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST_FIRST.index(_tier(item.path)))
    for item in items:
        tier = _tier(item.path)
        item.add_marker(tier)
        if tier in {"contract", "serving"} and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_EXPORT_TIMEOUT_SECONDS))


def pytest_collection_finish() -> None:
    """Keep what is imported out of the garbage collector: with torch there, a collection takes half a second."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the requirement of every tier that marks the test: a test outside ``tests/gpu`` may be marked ``gpu``."""
    for mark in item.iter_markers():
        if mark.name in TIERS and (reason := TIERS[mark.name]()):
            if CI:
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)


# Files that go to one worker, because they share what takes many seconds.
TOGETHER = {
    "the plans of all op cases": (
        "tests/gpu/test_tint.py",
        "tests/project/test_operator_table.py",
        "tests/unit/test_parts.py",
    ),
    "the server of tests/serving/conftest.py": tuple(
        f"tests/serving/test_{name}.py" for name in ("around", "chats", "endpoints", "errors", "structure")
    ),
}


def scope_of(nodeid: str) -> str:
    """Return what one worker gets: a file, whose fixtures are then set up once. Op cases share none and go op by op."""
    file, _, rest = nodeid.partition("::")
    for shared, files in TOGETHER.items():
        if file in files:
            return shared
    return f"{file}::{rest.partition('(')[0]}" if file.endswith("/test_cases.py") else file


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    config.option.loadscopereorder = False  # LONGEST_FIRST is the order
    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker found out about the adapter."""
    if result := getattr(node, "workeroutput", {}).get("adapter"):
        _worker_adapters.append(result)


_worker_adapters: list[dict[str, str]] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput") and adapter.cache_info().currsize:
        session.config.workeroutput["adapter"] = adapter()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    listed = _worker_adapters or ([adapter()] if adapter.cache_info().currsize else [])
    if listed and "error" not in (info := listed[0]):
        facts = (info.get(key) for key in ("device", "backend_type", "description"))
        terminalreporter.write_line("adapter: " + ", ".join(filter(None, facts)))
