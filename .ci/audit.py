"""Report what pip-audit found: `python .ci/audit.py report.json log`.

Fails on vulnerabilities, and if a package could not be audited. With AUDIT=optional, only vulnerabilities fail.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

NOT_AUDITED = 2  # exit code


def main(report: Path, log: Path) -> int:
    if not report.exists():
        lines = log.read_text(encoding="utf-8").strip().splitlines() or ["pip-audit said nothing"]
        print(f"NOT AUDITED: pip-audit could not reach its data: {lines[-1]}")
        return _not_audited()
    packages = json.loads(report.read_text(encoding="utf-8"))["dependencies"]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    vulnerable = [package for package in packages if package.get("vulns")]
    for package in vulnerable:
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version"
            print(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
    if len(skipped) == len(packages):
        print(f"NOT AUDITED: pip-audit found data about none of {len(packages)} packages")
        return _not_audited()
    if skipped:
        print(f"audited {len(packages) - len(skipped)} of {len(packages)} packages, not {', '.join(skipped)}")
    else:
        print(f"audited {len(packages)} packages, {len(vulnerable)} with known vulnerabilities")
    return 1 if vulnerable else 0


def _not_audited() -> int:
    return 0 if os.environ.get("AUDIT") == "optional" else NOT_AUDITED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
