"""`webpte`, with more patience after Ctrl-C: `python -m tests.support.harness.patient_cli chat MODEL`.

The command ends a chat that does not say within two seconds that it has heard the key. On a slow machine that is a
matter of luck; everything else is the real command.
"""

from __future__ import annotations

from webpte import cli
from webpte.cli import interrupts

if __name__ == "__main__":
    interrupts.RESUME_SECONDS = 60.0
    cli.entry()
