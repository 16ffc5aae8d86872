"""Starting up: help and `import webpte` wait neither for NumPy nor for the GPU's libraries.

What takes the time is modules: they are counted, and not the seconds, which are another machine's.
"""

from __future__ import annotations

import pytest

from tests.support.harness.children import run_python

HEAVY = ("numpy", "wgpu", "rich", "jinja2", "tokenizers", "torch")
HELP = "from webpte.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"


def imported_by(code: str) -> set[str]:
    return set(run_python(f"{code}\nimport sys\nprint('imported', *sys.modules)").splitlines()[-1].split()[1:])


@pytest.mark.parametrize(("start", "own", "all_"), [("import webpte", 10, 80), (HELP, 25, 150)], ids=["import", "help"])
def test_starting_imports_few_modules(start, own, all_):
    """On Python 3.11 `import webpte` imports 4 of its own modules and 33 in all, help 11 and 69; NumPy alone 140."""
    result = imported_by(start) - imported_by("")
    assert len([name for name in result if name.partition(".")[0] == "webpte"]) <= own
    assert len(result) <= all_


@pytest.mark.parametrize(
    "start",
    [
        "import webpte",
        "import webpte; webpte.Error, webpte.__version__",
        HELP,
    ],
)
def test_import_webpte_loads_no_heavy_modules(start):
    imported = {name.partition(".")[0] for name in imported_by(start)}
    assert "webpte" in imported and not imported & set(HEAVY)


def test_process_that_decodes_media_imports_neither_the_api_nor_the_engine():
    imported = imported_by("import webpte.serve.media_process")
    assert "webpte.llm.image_prompts" in imported
    assert not imported & {"pydantic", "starlette", "jinja2", "tokenizers", "wgpu", "webpte.fusion", "webpte.graph"}


def test_lazy_import_loads_on_first_use():
    run_python("import sys, webpte\nassert callable(webpte.load)\nassert {'numpy', 'wgpu'} <= set(sys.modules)")
