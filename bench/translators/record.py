"""The record of accepted kernels: those of small programs that every translator and compiler has accepted.

The gate has no time to build the compilers. It compares the texts of today's kernels with this record instead, so a
kernel that changes must be translated and compiled before it is merged: `python -m bench.translators --record`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from . import targets
from .kernels import Source, Sources

FILE = Path(__file__).with_name("accepted.json")
COMMAND = "python -m bench.translators --record"
CHECKS = sorted({path for paths in targets.CHECKS.values() for path in paths})
Accepted = Mapping[str, str]  # key of a kernel -> its label
Translate = Callable[[list[Source]], Mapping[tuple[Source, str], targets.Result]]


def key(source: Source) -> str:
    """Return what identifies a kernel in the record: a hash of its text and of the size of its workgroups."""
    return hashlib.sha256(f"{source.workgroup}\n{source.text}".encode()).hexdigest()[:16]


def read() -> Accepted:
    """Return the kernels that were accepted by the checks of today; none if the checks have changed since."""
    record = json.loads(FILE.read_text(encoding="utf-8"))
    return dict(record["kernels"]) if record["checks"] == _checks() else {}


def missing(sources: Sources) -> list[Source]:
    """Return the kernels that are not in the record."""
    accepted = read()
    return [source for source in sources if key(source) not in accepted]


def renew(sources: Sources, translate: Translate) -> dict[tuple[Source, str], targets.Result]:
    """Translate the kernels that are not in the record, and write it if all are accepted. Return the new results."""
    results = dict(translate(missing(sources)))
    if not list(targets.failures(results)):
        kernels = {key(source): source.label for source in sources}
        text = json.dumps({"checks": _checks(), "kernels": kernels}, indent=0, sort_keys=True, ensure_ascii=False)
        FILE.write_text(text + "\n", encoding="utf-8")
    return results


def _checks() -> str:
    texts = [path.read_text(encoding="utf-8") for path in CHECKS]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
