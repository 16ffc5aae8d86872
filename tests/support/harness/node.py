"""Node.js, for the parts of the web player that need no page."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "web" / "node"


def ask_node(script: str, name: str, value: Any, timeout: float = 60) -> Any:
    """Return the result of a function of a script in Node."""
    done = subprocess.run(
        ["node", SCRIPTS / script],
        input=json.dumps({"name": name, "given": value}),
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_node_tests(script: str, timeout: float = 60) -> None:
    """All tests of a script of `node --test`."""
    done = subprocess.run(["node", "--test", SCRIPTS / script], capture_output=True, encoding="utf-8", timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr


class NodePage:
    """The calls of a page of Playwright, answered by a process of Node, Deno or Bun with the player outside pages."""

    def __init__(self, process: subprocess.Popen[str], timeout: float) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin = process.stdin
        self._timeout = timeout
        self._answers: queue.Queue[str] = queue.Queue()
        stdout = process.stdout

        def read() -> None:
            for line in stdout:
                self._answers.put(line)
            self._answers.put("")  # the process ended

        threading.Thread(target=read, daemon=True).start()

    def evaluate(self, code: str, arg: Any = None) -> Any:
        """Return the value of an expression, or the result of a function of one argument."""
        self._stdin.write(json.dumps({"code": code, "arg": json.dumps(arg)}) + "\n")
        self._stdin.flush()
        line = self._answers.get(timeout=self._timeout)
        assert line, "the process ended"
        answer = json.loads(line, object_hook=_unpack)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def wait_for_function(self, code: str, *, arg: Any = None) -> None:
        deadline = time.monotonic() + self._timeout
        while not self.evaluate(code, arg):
            assert time.monotonic() < deadline, code
            time.sleep(0.05)


def _unpack(value: dict[str, Any]) -> Any:
    text = value.get("$")
    if text is None:
        return value
    return float(text.replace("Infinity", "inf")) if text.endswith(("Infinity", "NaN")) else int(text)


@contextmanager
def node_page(*command: str | Path, timeout: float = 120) -> Iterator[NodePage]:
    """Start the command, by default Node, with the script that answers a `NodePage`."""
    process = subprocess.Popen(
        [*(command or ("node",)), SCRIPTS / "host.mjs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        yield NodePage(process, timeout)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
