"""Fixtures of the web player's tests: Chromium with WebGPU, a server, pages, and bundles of small programs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

import webpte
from tests.support.export.exporting import Builder, Exported, export
from tests.support.harness.browser import TIMEOUT, WEBGPU, chromium
from tests.support.harness.node import NodePage, node_page
from tests.support.harness.site_server import SiteServer, serving

WEB = Path(__file__).parents[2] / "web"


def run_command(*command: str | Path, cwd: Path) -> str:
    """Return what a command that must succeed writes."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """Return the packages that develop the player; a page needs none of them."""
    folder = WEB / "node_modules"
    if not folder.is_dir():
        reason = "no packages from npm: run `npm ci` in web/"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def project(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of someone else's that has installed the package."""
    folder = tmp_path_factory.mktemp("project")
    packed = json.loads(run_command("npm", "pack", "--json", "--pack-destination", folder, cwd=WEB))[0]
    (folder / "package.json").write_text(json.dumps({"name": "sample", "type": "module", "private": True}))
    run_command("npm", "install", "--offline", "--no-audit", "--no-fund", f"./{packed['filename']}", cwd=folder)
    return folder


@pytest.fixture(scope="package")  # while it runs, Playwright's event loop keeps asyncio from the tests of other tiers
def browser() -> Iterator[Browser]:
    with chromium(*WEBGPU) as running:
        yield running


@pytest.fixture
def server() -> Iterator[SiteServer]:
    """It serves the player under /web; tests add folders of their own."""
    with serving({"web": WEB}) as site:
        yield site


@pytest.fixture
def page(browser: Browser, server: SiteServer) -> Iterator[Page]:
    """A blank page of the server, with a store of its own. What it complains about is a failure."""
    context = browser.new_context()
    try:
        opened = context.new_page()
        opened.set_default_timeout(TIMEOUT)
        complaints: list[str] = []
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.goto(f"{server.origin}/blank.html")
        yield opened
        assert not complaints
    finally:
        context.close()


@pytest.fixture(params=["page", "node"])
def host(request: pytest.FixtureRequest, node_modules: Path) -> Iterator[Page | NodePage]:
    """Yield a page, or Node with the package `webgpu`."""
    if request.param == "page":
        yield request.getfixturevalue("page")
        return
    with node_page() as node:
        yield node


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Exported, Path]]:
    """Return a program by its name or builder, and its bundle, made once, with the shapes that a function asks for."""
    created: dict[object, tuple[Exported, Path]] = {}

    def get(program: str | Builder, shapes: Callable[[Exported], Any] = lambda exported: None) -> tuple[Exported, Path]:
        key = program, shapes
        if key not in created:
            exported = export(program)
            name = program if isinstance(program, str) else program.__name__
            folder = tmp_path_factory.mktemp(name)
            with webpte.load(exported.path, data=exported.data) as loaded:
                webpte.bundle(loaded, folder / "site", name=name, shapes=shapes(exported))
            created[key] = exported, folder / "site"
        return created[key]

    return get
