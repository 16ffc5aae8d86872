"""The hash of an export covers the definitions that its builder names, and nothing else."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.export import sources

BUILDER = """
'''A file.'''
from __future__ import annotations
import torch
from .beside import scale as factor
from . import beside

SIZE = 3
OTHER = 4

def build(rows: int) -> Model:
    '''Return a model.'''
    width = rows * SIZE  # columns
    values = [step * factor(width) for step in range(rows)]
    def inner(x):
        nonlocal width
        width = x
    return Layer(values, width), beside.shift(width)

class Layer(torch.nn.Module):
    SLOPE: float = 0.5
    def forward(self, x):
        product = x * self.SLOPE
        return product

def unrelated():
    return OTHER
"""
BESIDE = """
def scale(x):
    return 2 * x

def shift(x):
    return x + bias()

def bias():
    return 1

def unrelated():
    return 3
"""


@pytest.fixture
def hash_of(tmp_path_factory):
    def of(builder=BUILDER, beside=BESIDE, name="build"):
        folder = tmp_path_factory.mktemp("sources")
        (folder / "builder.py").write_text(textwrap.dedent(builder))
        (folder / "beside.py").write_text(textwrap.dedent(beside))
        return sources.definitions_hash((folder / "builder.py", name))

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'''A file.'''", "'''Another text.'''"),
        ("'''Return a model.'''", ""),
        ("# columns", "# rows"),
        ("OTHER = 4", "OTHER = 5"),
        ("return OTHER", "return OTHER + 1"),
        ("width", "columns"),
        ("step", "value"),
        ("product", "result"),
        ("rows: int", "rows: float"),
        ("-> Model", "-> Layer"),
        ("def build", "@program(tolerance=1e-3)\ndef build"),
    ],
)
def test_definitions_hash_edit_without_effect_is_equal(hash_of, old, new):
    assert old in BUILDER
    assert hash_of(BUILDER.replace(old, new)) == hash_of()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SIZE = 3", "SIZE = 4"),
        ("rows", "lines"),  # a parameter: callers may name it
        ("SLOPE", "FACTOR"),
        ("SLOPE: float", "SLOPE: ClassVar[float]"),
        ("x * self", "self * x"),
        ("import torch", "import torch.nn as torch"),
        ("step * factor(width)", "step * width"),
        ("(values, width)", "(width, values)"),
        ("import scale as factor", "import shift as factor"),
        ("beside.shift", "beside.scale"),
        ("OTHER = 4", "torch.manual_seed(4)"),
        ("        nonlocal width\n", ""),
    ],
)
def test_definitions_hash_edit_with_effect_differs(hash_of, old, new):
    assert old in BUILDER
    assert hash_of(BUILDER.replace(old, new)) != hash_of()


def test_definitions_hash_follows_names_into_other_files(hash_of):
    assert hash_of(beside=BESIDE.replace("return 1", "return 2")) != hash_of()
    assert hash_of(beside=BESIDE.replace("return 3", "return 4")) == hash_of()


def test_definitions_hash_of_globals_covers_file(hash_of):
    builder = BUILDER.replace("width = rows", "width = globals()['unrelated']() * rows")
    assert hash_of(builder) != hash_of(builder.replace("OTHER = 4", "OTHER = 5"))


def test_definitions_hash_moved_definition_is_equal(hash_of):
    moved = BUILDER.replace("from .beside import scale as factor", "def scale(x):\n    return 2 * x\n")
    here = BUILDER.replace("scale as factor", "scale").replace("factor", "scale")
    assert hash_of(moved.replace("factor", "scale")) == hash_of(here)


def test_definitions_hash_missing_definition_raises(hash_of):
    with pytest.raises(LookupError, match="nothing"):
        hash_of(name="nothing")


def test_source_hash_covers_all_definitions_but_no_docstrings(tmp_path):
    def of(text):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        return sources.source_hash(path)

    assert of(BUILDER.replace("'''Return a model.'''", "").replace("product", "result")) == of(BUILDER)
    assert of(BUILDER.replace("OTHER = 4", "OTHER = 5")) != of(BUILDER)
