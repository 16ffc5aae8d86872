"""Contenders as processes: started when first asked, stopped at the end, and never trusted to answer."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .rows import cache_root

REPOSITORY = Path(__file__).parents[1]
PREPARE_SECONDS = 900.0  # a contender may convert a model or compile its kernels
RUN_SECONDS = 120.0


@dataclass(frozen=True)
class Environment:
    """Where a contender lives: this Python, or one made by `python -m bench.setup` with what pip installs."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # none: the environment that runs the bench
    variables: dict[str, str] = field(default_factory=dict)
    kind: str = "peer"  # "webpte", "bare" or "peer"

    @property
    def folder(self) -> Path:
        return cache_root().parent / f"bench-{self.module.rpartition('.')[2]}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python" if self.packages else Path(sys.executable)

    @property
    def missing(self) -> str | None:
        if self.python.exists():
            return None
        return f"not installed: run `python -m bench.setup` ({', '.join(self.packages)})"


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("webpte", "bench.contenders.webpte", kind="webpte"),
        Environment("webpte (no fusion)", "bench.contenders.webpte", ("--no-fusion",), kind="webpte"),
        Environment("bare engine", "bench.bare.contender", kind="bare"),
        Environment("ONNX Runtime", "bench.contenders.ort", packages=("onnxruntime-webgpu==1.27.0", "onnx==1.23.2")),
        Environment("LiteRT", "bench.contenders.litert", packages=("ai-edge-litert==2.3.0", "litert-torch==0.10.0")),
        Environment("tinygrad", "bench.contenders.tinygrad", packages=("tinygrad==0.14.0", "dawn-python==0.3.0")),
    )
}


class WorkerError(Exception):
    """A contender died or did not answer in time."""


class Worker:
    """One contender's process."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._log = tempfile.NamedTemporaryFile(prefix="bench-", suffix=".log")  # noqa: SIM115  # closed with the worker
        self._process: subprocess.Popen[str] | None = None

    def ask(self, seconds: float, **question: Any) -> dict[str, Any]:
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(seconds):
                    self.stop()
                    raise WorkerError(f"no answer to {question['do']} in {seconds:.0f} s")
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = process.wait()
            self.stop()
            raise WorkerError(f"its process ended with {code}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            environment = self.environment
            command: Sequence[str] = (str(environment.python), "-m", environment.module, *environment.arguments)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, **shader_cache(), **environment.variables},
            )
        return self._process

    def _last_words(self) -> str:
        lines = Path(self._log.name).read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was said")


def shader_cache() -> dict[str, str]:
    """lavapipe keeps compiled kernels only where it is asked to; every contender gets the same place."""
    if "MESA_SHADER_CACHE_DIR" in os.environ:
        return {}
    folder = cache_root().parent / "mesa"
    folder.mkdir(parents=True, exist_ok=True)
    return {"MESA_SHADER_CACHE_DIR": str(folder)}
