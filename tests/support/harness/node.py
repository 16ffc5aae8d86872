"""Node.js, for the parts of the web player that need no page."""

from __future__ import annotations

import json
import subprocess
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
