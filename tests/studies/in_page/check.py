"""The check page over a folder of ops: `python -m tests.studies in_page.check FOLDER`. Ends with status 1 if any fails.

FOLDER is what ExecuTorch's generator of op tests writes; see tests/catalog.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.support.harness.browser import WEBGPU, chromium
from tests.support.harness.site_server import serving
from webpte.bundles.check import bundle_checks

from .visit import MINUTES


def outcome(page: Page, minutes: float) -> dict[str, Any]:
    """Return the results of a check page when it has run everything."""
    page.locator("#run").wait_for(state="visible", timeout=minutes * MINUTES)
    failed = page.locator("#rows .failed th").all_inner_texts()
    return {
        "verdict": page.inner_text("#verdict"),
        "adapter": page.inner_text("#adapter"),
        "suspects": page.inner_text("#suspects"),
        "failed": failed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies in_page.check", description=__doc__)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = bundle_checks(Path(folder) / "site", options.folder)
        with serving({"site": site}) as server, chromium(*WEBGPU) as browser:
            page = browser.new_page()
            page.goto(f"{server.origin}/site/index.html")
            result = outcome(page, minutes=30)
    for name, said in result.items():
        print(f"{name}: {said}")
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
