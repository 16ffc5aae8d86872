"""Write the table of devices of docs/compilers.md from bench/compilers/results: python -m docs.make_compilers

tests/project/test_figures.py fails if the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.compilers.drivers import DEVICES, VENDORS
from bench.compilers.report import stored

PAGE = Path(__file__).with_name("compilers.md")
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def text() -> str:
    """Return the page with the devices of the stored reports."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{_devices()}\n\n{END}{rest.partition(END)[2]}"


def _devices() -> str:
    reports = stored()
    lines = ["| device | GPU | driver | Mesa |", "|---|---|---|---|"]
    for name, device in DEVICES.items():
        vendor = VENDORS[device.vendor]
        mesa = sorted({report.versions[vendor.mesa].partition("-")[0] for report in reports if name in report.devices})
        if mesa:
            lines.append(f"| {name} | {device.title} | {vendor.driver} | {', '.join(mesa)} |")
    return "\n".join(lines)


def main() -> int:
    PAGE.write_text(text(), encoding="utf-8")
    print(f"docs/{PAGE.name}: {len(text())} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
