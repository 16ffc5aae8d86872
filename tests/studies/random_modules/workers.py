"""The parent's side: a child that exports and runs programs, and survives neither of them going wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.support.harness import workers

from .program import Program
from .running import CRASHED, NOT_EXPORTED, Outcome

MAX_REQUESTS = 60  # exporters keep what they made
TIMEOUT = 240.0  # seconds for an export, and for a run


class Worker(workers.Worker):
    """Asks a child process, and starts another when it died."""

    def __init__(self) -> None:
        super().__init__(
            "-W",
            "ignore",
            "-m",
            "tests.studies.random_modules.worker",
            timeout=TIMEOUT,
            max_requests=MAX_REQUESTS,
            quiet=True,
        )

    def seed(self, seed: int) -> Outcome:
        return self._ask({"seed": seed})

    def program(self, program: Program) -> Outcome:
        """A program that is not kept."""
        with tempfile.TemporaryDirectory(prefix="webpte-random-") as folder:
            return self._ask({"program": program.to_json(), "folder": str(Path(folder) / "made")})

    def _ask(self, request: dict[str, Any]) -> Outcome:
        self.send(request)
        if self.receive() is None:
            return Outcome(NOT_EXPORTED, self.reason())
        result = self.receive()
        if result is None:
            return Outcome(CRASHED, self.reason())
        result.pop("seconds")
        return Outcome(**result)
