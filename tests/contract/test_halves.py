"""f16 programs on devices with and without f16 in shaders."""

from __future__ import annotations

import pytest

import webpte
from tests.contract.test_programs import check
from tests.support.export.exporting import export
from webpte.device import adapter
from webpte.wgsl import render, uses_f16


@pytest.mark.parametrize("features", [("shader-f16",), ()])
def test_half_with_and_without_shader_f16(features, monkeypatch):
    monkeypatch.setattr(adapter, "_USED_FEATURES", features)
    exported = export("half")
    with webpte.load(exported.path) as program:
        uses = any(uses_f16(render(k)) for k in program.plan().kernels)
        if uses and not adapter.adapter_caps().features:
            pytest.fail("an f16 kernel was chosen for a device without f16")
        assert uses == bool(features)
        check(program, exported, 2e-3)
