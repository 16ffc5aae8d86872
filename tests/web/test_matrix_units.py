"""Products on matrix units: valid for Tint, as Dawn has it in Node, and with the results of their references.

The second runs where `python -m bench.compilers.build apple` has unpacked a newer Mesa, as the nightly run does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.compilers import debian_root
from tests.cases.q4.linear_q4 import by_halves, gated, joined
from tests.support.harness.cases import T, assert_close, planned_kernels, reference
from tests.support.harness.matrix_units import SIZES, Layers, caps_with, every_variant, tint_messages, variant
from webpte.wgsl import APPLE_MATRIX, matrices_of, render

FORMATS = ("int4", "int4_high_first", "int8", "mxfp4")


def layers(name):
    """Return what a variant has to do: formats, tails, groups, biases, several outputs, gates and epilogues."""
    some = {"n": (67, 17), "variant": name}
    inners = {"int8": 76, "mxfp4": 96}
    cases = [replace(layer, sizes=layer.sizes[:2]) for layer in by_halves(name)]  # others have another kernel
    for format in FORMATS:
        inner = inners.get(format, 88)
        group = {"mxfp4": 32, "int4": 8}.get(format, inner)
        x = T("n", inner, low=-1, high=1)
        more = {"format": format, "group": group, "atol": 0.3 if format == "int8" else 2e-2, **some}
        cases += [
            joined(x, (37,), biased=True, residual=T("n", 37), activation="gelu", **more),
            gated(x, 37, activation="tanh", **more | {"rtol": 4e-3}),
        ]
    return cases


def test_tint_accepts_kernels_of_matrix_units(node_modules, tmp_path):
    texts = {}
    for name, shape in every_variant():
        for layer in layers(name)[::2]:
            for kernel in planned_kernels(layer, tmp_path, caps_with(shape)):
                texts[kernel.label] = render(kernel, naga=False)
    using = {label: text for label, text in texts.items() if matrices_of(text) is not None}
    assert len(using) > 40
    messages = tint_messages([*using.values(), next(iter(using.values())).replace("col_major", "diagonal")])
    assert any(message.startswith("error") for message in messages[-1])
    assert [label for label, reported in zip(using, messages, strict=False) if reported] == [], messages[:-1]


@pytest.fixture
def newer_mesa(node_modules):
    if reason := debian_root.missing():
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
def test_layers_on_matrix_units_have_results_of_references(size, tmp_path, newer_mesa):
    planned = Layers(layers(variant(size, APPLE_MATRIX)), tmp_path)
    calls, expected, places = [], [], []
    for number, (program, layer) in enumerate(zip(planned.programs, planned.cases, strict=True)):
        for sizes in layer.sizes:
            random = np.random.default_rng(number)
            arrays = [t.array(sizes, random) for t in layer.tensors]
            arrays = [program.fixed.get(i, array) for i, array in enumerate(arrays)]
            inputs = [array for t, array in zip(layer.tensors, arrays, strict=True) if not t.constant]
            calls.append((number, inputs))
            expected.append(reference(layer, program.substitute(arrays, sizes)))
            places.append((layer, sizes))
    for results, references, (layer, sizes) in zip(planned.run(calls), expected, places, strict=True):
        for result, want in zip(results, references, strict=True):
            assert_close(result, want, layer.atol, layer.rtol, f"{layer} at {sizes}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_row_on_matrix_units_independent_of_number_of_rows_and_size(tmp_path, newer_mesa):
    """To the bit: also of tiles of 32 and 64 rows, which have one order."""
    counts = (67, 66, 64, 33, 32, 31, 17)
    planned = Layers(
        [
            make(T("n", 576), columns, normed=True, variant=variant(size, APPLE_MATRIX), n=counts)
            for size in SIZES
            for make, columns in ((joined, (60, 7)), (gated, 67))
        ],
        tmp_path,
    )
    x = np.random.default_rng(7).normal(size=(counts[0], 576)).astype(np.float32)
    results = planned.run([(number, [x[:count]]) for number in range(4) for count in counts])
    for number in range(4):
        first, *others = results[number * len(counts) : (number + 1) * len(counts)]
        for count, other in zip(counts[1:], others, strict=True):
            for some, every in zip(other, first, strict=True):
                assert np.array_equal(some, every[:count]), f"layer {number}, {count} rows"
