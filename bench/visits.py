"""What a visit to a bundle's page loads, and what that costs: `python -m bench.visits SITE…`, then `bench.scale`.

bench/page.json, which the same section stands on, is what `python -m bench.page --json bench/page.json` measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from webpte.bundles.site import summary

from .page.names import AS_GPU, NATIVE, ORT, PAGE, UNCHECKED, ratio
from .rows import ROWS

STORED = Path(__file__).with_name("visits.json")
SPEEDS = Path(__file__).with_name("page.json")
SECTION = Path(__file__).with_name("web_section.md")  # of docs/scale.md
PRICE = 0.02  # dollars for a gigabyte, as an example
NEW = (1.0, 0.2)  # of the visits, those that find nothing in the browser's store


def measured(site: Path) -> dict[str, Any]:
    """Bytes as they travel: texts in gzip, weights as they are. Bytes on the device are those of the first variant."""
    found = summary(site)
    manifest = json.loads((site / "manifest.json").read_bytes())
    (variants,) = [method["variants"] for name, method in manifest["methods"].items() if name == "forward"]
    visit = found["visit"]
    return {
        "page": visit["page_gzip"],
        "plan": visit["plan_gzip"],
        "weights": visit["weights"],
        "manifest": len(gzip.compress((site / "manifest.json").read_bytes(), mtime=0)),
        "device": variants[0]["bytes"],
    }


def first(visit: Mapping[str, Any]) -> int:
    return int(visit["page"] + visit["plan"] + visit["weights"])


def again(visit: Mapping[str, Any]) -> int:
    """The page, its player and the manifest, where the server sends them whole; where it says 304, headers only."""
    return int(visit["page"] + visit["manifest"])


def dollars(visit: Mapping[str, Any], new: float, price: float = PRICE) -> float:
    """For a million visits."""
    return (new * first(visit) + (1 - new) * again(visit)) * 1e6 / 1e9 * price


def section() -> str:
    visits, speeds = json.loads(STORED.read_text()), json.loads(SPEEDS.read_text())
    return SECTION.read_text(encoding="utf-8").format(
        visits="\n".join(visit_row(name, visit) for name, visit in visits.items()),
        costs="\n".join(cost_row(name, visit) for name, visit in visits.items()),
        new=" | ".join(f"{share:.0%} new" for share in NEW),
        price=PRICE,
        speeds="\n".join(speed_rows(speeds)),
    )


def visit_row(name: str, visit: Mapping[str, Any]) -> str:
    device = sum(visit["device"].values())
    sizes = (visit["page"], visit["plan"], visit["weights"], first(visit), again(visit), device)
    return f"| {name} | " + " | ".join(f"{nbytes / 1e6:.2f}" for nbytes in sizes) + " |"


def cost_row(name: str, visit: Mapping[str, Any]) -> str:
    return f"| {name} | " + " | ".join(f"{dollars(visit, share):,.2f}" for share in NEW) + " |"


def speed_rows(speeds: Mapping[str, Any]) -> Iterator[str]:
    for name, row in speeds.items():
        times = (f"{row[who]['milliseconds']:.0f}" for who in (PAGE, ORT))
        pairs = ((PAGE, ORT), (PAGE, NATIVE), (PAGE, UNCHECKED), (AS_GPU, ORT))
        ratios = (f"{ratio(row, *pair):.2f}" if row.keys() >= set(pair) else "" for pair in pairs)
        yield f"| {ROWS[name].title} | " + " | ".join([*times, *ratios]) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.visits", description=__doc__)
    parser.add_argument("sites", type=Path, nargs="+", help="folders that `webpte bundle` wrote")
    options = parser.parse_args(arguments)
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    for site in options.sites:
        name = json.loads((site / "manifest.json").read_bytes())["name"]
        found[name] = measured(site)
        print(visit_row(name, found[name]))
    STORED.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
