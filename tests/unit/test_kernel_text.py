"""Kernels of saved plans that nest more deeply than a shader compiler survives are refused before it reads them."""

from __future__ import annotations

import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.plan.plan_reader import MAX_BRANCHES, MAX_NESTING, MAX_STATEMENT, check_kernel_text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("(" * (MAX_NESTING + 1) + ")" * (MAX_NESTING + 1), MAX_NESTING + 1),
        ("{[(" * 30 + ")]}" * 30, 90),
        (")" * 99 + "(" * 99, 99),
        ("x" * (MAX_STATEMENT + 1), MAX_STATEMENT + 1),
        ("else " * (MAX_BRANCHES + 1), MAX_BRANCHES + 1),
        ("x // ;\n" * 3000, 2 * 3000 + 3000),
        ("x /*;*/" * 3000, ""),
    ],
)
def test_kernel_text_beyond_nesting_limit_is_refused(text, number):
    with raises(webpte.FormatError, "plan.json", number, code="kernel"):
        check_kernel_text(text, "plan.json")


def test_kernel_text_within_limits_is_accepted():
    check_kernel_text("(" * MAX_NESTING + ")" * MAX_NESTING, "plan.json")
    check_kernel_text("x" * MAX_STATEMENT + ";" + "x" * MAX_STATEMENT, "plan.json")
    check_kernel_text("// " + "(" * 5000 + "\nfn main() {}", "plan.json")


def test_kernel_text_beyond_size_budget_is_refused():
    with raises(webpte.Error, f"{(1 << 20) + 1:,}"):
        check_kernel_text(";" * ((1 << 20) + 1), "plan.json")
