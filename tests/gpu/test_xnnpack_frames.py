"""The same delegates in the frames of old and new releases of ExecuTorch give the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import webpte
from tests.gpu.test_xnnpack import RIGHT
from tests.studies.xnnpack.running import FOLDER, difference, golden_calls
from tests.support.harness.xnn_writer import xnn_pte
from webpte.container import MappedFile, XnnQuant, XnnValue, parse_program, parse_xnnpack

FRAMES = {"inline": b"XN00", "offsets": b"XH00", "named": b"constant 1"}  # of 0.1, of 0.2 to 0.5, of 0.6 and later
ONE_DELEGATE = ("conv_bn_relu", "conv_qd8_3x3", "depthwise", "linear_int8_static", "linear_qd8_qc4w")


def _listed(value: XnnValue, constants: list[bytes]) -> XnnValue:
    """The value with its scales in the flatbuffer, where releases before 0.7 have them."""
    quant = value.quant
    if quant is None or not quant.scale_data:
        return value
    assert quant.kind == "channel"
    scales = np.frombuffer(constants[quant.scale_data - 1], "<f4")
    listed = XnnQuant("channel", tuple(map(float, scales)), channel_dim=quant.channel_dim)
    return replace(value, quant=listed)


@pytest.mark.parametrize("framing", FRAMES)
@pytest.mark.parametrize("name", ONE_DELEGATE)
def test_frames_of_every_release_load(name, framing, device, tmp_path):
    with MappedFile(FOLDER / f"{name}.pte") as file:
        program = parse_program(file)
        (delegate,) = program.methods[0].delegates
        graph = parse_xnnpack(delegate.blob)
        spans = [program.named_data[entry.key] for entry in graph.constants[1:] if entry.key is not None]
        constants = [bytes(span.view()) for span in spans]
    values = graph.values if framing == "named" else [_listed(value, constants) for value in graph.values]
    path = tmp_path / "program.pte"
    path.write_bytes(xnn_pte(values, graph.nodes, constants, framing=framing))
    assert FRAMES[framing] in path.read_bytes()
    with webpte.load(path) as rewritten:
        method = rewritten.method("forward")
        results = [
            pair for inputs, outputs in golden_calls(name) for pair in zip(method.run(inputs), outputs, strict=True)
        ]
    assert difference(results).relative <= RIGHT[name]
