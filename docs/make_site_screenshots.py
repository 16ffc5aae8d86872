"""Take images of the built documentation and of a report, to look at: python -m docs.make_site_screenshots SITE OUT

SITE is what `python -m sphinx -W -n -b html docs SITE` made. Wide and as wide as a phone, in the light and in the dark.
Every page is looked at for what sticks out of the window, too; any is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.support.harness.browser import TIMEOUT, chromium
from webpte.debug.report import render_page, report_data

PROGRAM = Path(__file__).parent / "demo" / "model.pte"
PAGES = (
    "index",
    "getting-started",
    "llm",
    "serving",
    "web",
    "debugging",
    "configuration",
    "architecture",
    "benchmarks",
    "glossary",
)
WIDTHS = (1300, 390)
SCHEMES = ("light", "dark")
# Elements beyond the right edge of the window that no box of theirs scrolls or cuts.
STICKS_OUT = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (!box.width || box.right <= wide + 1 || !element.checkVisibility()) continue;
    let held = false;
    for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.overflowX !== "visible" || style.position === "fixed") held = true;
    }
    if (!held && getComputedStyle(element).position !== "fixed") found.push(element.tagName + "." + element.className);
  }
  if (document.documentElement.scrollWidth > wide + 1) found.push("the page scrolls sideways");
  return found.slice(0, 5);
}"""


def main(site: Path, out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    report = out / "report.html"
    report.write_text(render_page(report_data(PROGRAM)), encoding="utf-8")
    wrong = 0
    with chromium() as browser:
        for path in [*(site / f"{name}.html" for name in PAGES), report]:
            for page, name in opened(browser, path):
                page.screenshot(path=out / f"{path.stem}-{name}.png", full_page=path.stem == "index")
                if found := page.evaluate(STICKS_OUT):
                    wrong += 1
                    print(f"{path.stem} {name}: {found}")
    print(f"{out}: {len(list(out.glob('*.png')))} images, {wrong} pages too wide")
    return int(wrong > 0)


def opened(browser: Browser, path: Path) -> Iterator[tuple[Page, str]]:
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.set_default_timeout(TIMEOUT)
            page.goto(path.as_uri())
            yield page, f"{width}-{scheme}"
            context.close()


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))
