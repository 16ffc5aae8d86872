"""The flags of a dispatch: those that its template does not read are refused while planning."""

from __future__ import annotations

import pytest

from tests.support.harness.errors import raises
from webpte.errors import GraphError
from webpte.wgsl import check_flags, home_of

TEMPLATE = """\
{$ include "kernel.wgsl" $}
{$ from "macros.wgsl" import scaled $}
{$ from "reader.wgsl" import wide with context $}
{$ set rows = 4 $}
{$ set helpers = ["helper.wgsl"] $}
$$ if grouped
const GROUP = {{ group }};
$$ endif
{$ include "part.wgsl" $}
$$ for helper in helpers
{$ include helper $}
$$ endfor
"""
OTHERS = {
    "macros.wgsl": "{$ macro scaled(x) $}{{ x }} * {{ factor }}{$ endmacro $}",
    "reader.wgsl": "{$ macro wide() $}{{ width | default(1) }}{$ endmacro $}",
    "helper.wgsl": "const HELPER = {{ helped }};",
    "part.wgsl": "const ROWS = {{ rows }}; const TILE = {{ tile if tile is defined else 1 }};",
}


@pytest.fixture
def home(tmp_path):
    for name, text in {"k.wgsl": TEMPLATE, **OTHERS}.items():
        (tmp_path / name).write_text(text)
    return home_of(str(tmp_path))


def test_check_flags_accepts_what_any_branch_or_include_reads(home):
    flags = {"grouped": False, "group": 8, "width": 4, "tile": 2, "helped": 1}
    check_flags(home, "k.wgsl", flags)


@pytest.mark.parametrize("flag", ["groups", "rows", "factor", "x", "helpers", "workgroup"])
def test_check_flags_names_a_flag_that_is_not_read(home, flag):
    """`rows` is set by the template itself, `factor` is read by a macro that does not see the flags."""
    with raises(GraphError, "k.wgsl: flag", flag, "group, grouped, helped, tile, width", "got 3", code="unknown_flag"):
        check_flags(home, "k.wgsl", {"grouped": True, flag: 3})


def test_check_flags_changed_template_is_read_again(home, tmp_path):
    (tmp_path / "k.wgsl").write_text("const A = {{ added }}; // and more\n")
    check_flags(home, "k.wgsl", {"added": 1})
    with raises(GraphError, "flag grouped", code="unknown_flag"):
        check_flags(home, "k.wgsl", {"grouped": True})


def test_check_flags_missing_template_is_refused(home):
    with raises(GraphError, "none.wgsl", code="template_failed"):
        check_flags(home, "none.wgsl", {"type": "f32"})
