"""`webpte inspect FILE --kernel NAME`: the text of a kernel, and where its lines come from."""

from __future__ import annotations

import re

import pytest

import webpte
from tests.support.harness.children import ROOT
from tests.support.harness.errors import raises
from webpte.cli import main
from webpte.debug.kernel_text import kernel_text, template_name
from webpte.debug.parsed_method import parse_methods
from webpte.wgsl import Kernel, render
from webpte.wgsl.origins import source_lines

DEMO = ROOT / "docs" / "demo" / "model.pte"
OPS = ROOT / "src" / "webpte"


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    with parse_methods(DEMO) as (_, methods):
        return [kernel for method in methods if method.planner for kernel in method.planner.plan.kernels]


def test_source_lines_are_the_rendered_text(kernels):
    assert len(kernels) > 8
    for kernel in kernels:
        assert [line.text for line in source_lines(kernel)] == render(kernel).split("\n"), kernel.label


def test_source_lines_origins_contain_the_line(kernels):
    files = {path.name: path.read_text().split("\n") for path in OPS.rglob("*.wgsl")}
    compared = 0
    for kernel in kernels:
        for line in source_lines(kernel):
            for origin in line.origin.split():
                name, number = origin.split(":")
                template = files[name][int(number) - 1]
                if not re.search(r"\{\{|\{\$|\bf16w\b|^var<storage>", template):  # neither filled in nor rewritten
                    assert template.strip() in line.text, (kernel.label, origin)
                    compared += 1
    assert compared > 1000


def test_kernel_text_of_template_lists_all_variants(kernels):
    name = template_name(kernels[0])
    variants = {kernel.label for kernel in kernels if template_name(kernel) == name}
    heads = [line for line in kernel_text(DEMO, name).split("\n") if line.startswith(f"// {name}")]
    assert len(heads) == len(variants)
    assert kernel_text(DEMO, kernels[0].label) in kernel_text(DEMO, name)


def test_kernel_text_of_unknown_name_lists_the_names(kernels):
    with raises(webpte.InputError, "--kernel", template_name(kernels[0]), "no_such", code="unknown_kernel"):
        kernel_text(DEMO, "no_such")


@pytest.mark.parametrize("option", [["--json"], ["--html", "x.html"], ["--dot", "x.dot"]])
def test_inspect_kernel_with_another_output_is_refused(option, capsys):
    assert main(["inspect", str(DEMO), "--kernel", "rms_norm", *option]) == 1
    assert option[0] in capsys.readouterr().err
