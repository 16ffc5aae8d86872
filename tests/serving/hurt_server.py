"""`python -m tests.serving.hurt_server serve MODEL.pte ...`: `webpte serve` with a worker that can be hurt."""

from __future__ import annotations

import functools
import sys

from webpte.cli import main
from webpte.serve.supervisor import Supervisor

from .hurt_worker import COMMAND

if __name__ == "__main__":
    setattr(Supervisor, "__init__", functools.partialmethod(Supervisor.__init__, command=COMMAND))  # noqa: B010
    sys.exit(main())
