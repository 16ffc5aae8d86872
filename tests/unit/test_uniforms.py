"""A uniform block declared once: the struct that WGSL sees and the bytes that it gets agree."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.harness.errors import raises
from webpte.errors import GraphError, ShapeError
from webpte.wgsl import Kernel, Live, LiveInt, Uniforms, dims8, f32, grid_for, home_of, i32, render, u32


class Everything(Uniforms):
    count: u32
    offset: i32
    scale: f32
    start: Live
    dims: dims8
    last: u32


def test_uniform_members_have_wgsl_offsets():
    block = Everything(count=7, offset=-3, scale=0.5, start=LiveInt(9, 2), dims=(2, 3, 5, 7, 11), last=13).pack(99)
    assert struct.unpack_from("<IIif", block) == (99, 7, -3, 0.5)
    assert struct.unpack_from("<2i", block, 16) == (9, 2)  # vec2 aligns to 8
    assert struct.unpack_from("<8I", block, 32) == (2, 3, 5, 7, 11, 0, 0, 0)  # arrays align to 16
    assert struct.unpack_from("<I", block, 64) == (13,)
    assert len(block) % 16 == 0


def test_uniforms_struct_lists_members_in_order():
    names = [line.split(":")[0].strip() for line in Everything.wgsl.splitlines()[1:-1]]
    assert names == ["threads", "count", "offset", "scale", "start", "dims", "last"]


@given(st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1), st.lists(st.integers(0, 2**32 - 1), max_size=8))
def test_round_trip(count, offset, dims):
    block = Everything(count=count, offset=offset, scale=1.0, start=LiveInt(0, -1), dims=tuple(dims), last=1).pack(5)
    fields = Everything.unpack(block)
    assert (fields["count"], fields["offset"], fields["threads"]) == (count, offset, 5)
    assert fields["dims"][: len(dims)] == tuple(dims)


def test_missing_and_unknown_fields_are_refused():
    with pytest.raises(TypeError, match="lacks a value for count"):
        Everything(offset=1)
    with pytest.raises(TypeError, match="no field nonsense"):
        Everything(count=1, offset=1, scale=1, start=LiveInt(0, -1), dims=(), last=1, nonsense=2)


def test_uniforms_block_too_large_is_refused():
    with pytest.raises(TypeError, match="a parameter block has 256"):
        type("Huge", (Uniforms,), {"__annotations__": {f"d{i}": dims8 for i in range(9)}})


@given(st.integers(0, 10**9), st.sampled_from([1, 8, 64, 256]), st.sampled_from([7, 255, 65535]))
def test_grids_cover_every_thread_within_the_limit(threads, workgroup, limit):
    groups = -(-threads // workgroup)
    if groups > limit * limit:
        with raises(
            ShapeError,
            f"{threads} ",
            f"{groups} workgroups of {workgroup}",
            f"{limit} x {limit}",
            code="grid_too_large",
        ):
            grid_for(threads, workgroup, limit)
        return
    x, y, z = grid_for(threads, workgroup, limit)
    assert z == 1 and x <= limit and y <= limit
    assert x * y * workgroup >= threads
    assert (y - 1) * x < max(groups, 1)  # no empty rows


def test_kernel_template_missing_flag_raises(tmp_path):
    (tmp_path / "k.wgsl").write_text('{$ include "kernel.wgsl" $}\nvar<private> a: {{ type }};\n')
    with raises(GraphError, "k.wgsl", "'type'", code="template_failed"):
        render(Kernel(home_of(str(tmp_path)), "k.wgsl", (), Uniforms.wgsl, 64, 0, 1))


def test_f16_is_enabled_only_where_it_is_used(tmp_path):
    (tmp_path / "k.wgsl").write_text('{$ include "kernel.wgsl" $}\nvar<private> a: {{ type }};\n')
    assert render(Kernel(home_of(str(tmp_path)), "k.wgsl", (("type", "f16"),), Uniforms.wgsl, 64, 0, 1)).startswith(
        "enable f16;"
    )
    assert "enable" not in render(Kernel(home_of(str(tmp_path)), "k.wgsl", (("type", "f32"),), Uniforms.wgsl, 64, 0, 1))
