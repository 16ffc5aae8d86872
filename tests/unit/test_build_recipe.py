"""Formats of a program's layers, chosen from those of the checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.harness.errors import raises
from webpte.builder.quantize import FOUR_BITS_WITH_OFFSETS
from webpte.builder.recipe import ProgramWeights, default_recipe, layer_format
from webpte.checkpoints.architecture import Architecture, Experts, LayerSpec, Rope
from webpte.checkpoints.families import families
from webpte.checkpoints.family import Checkpoint
from webpte.checkpoints.ggml import TYPES, TensorType
from webpte.checkpoints.gguf_reader import StoredTensor
from webpte.checkpoints.mixtures import GGUF_EXPERT_NAMES, with_experts
from webpte.checkpoints.recipe import INT8, MXFP4, WeightFormat
from webpte.checkpoints.shapes import parameter_shapes
from webpte.checkpoints.weights import GGUF_IN_PAIRS, CheckpointWeights, TensorNames, WeightSource, map_weights
from webpte.container import MappedFile, Span
from webpte.errors import UnsupportedError
from webpte.ops.weight_formats import format_named

MODEL = Architecture(64, 2, 1, 32, 128, 96, 1e-5, (LayerSpec(),) * 2, {"rope": Rope(1e4, 32)}, tied=True)
MIXED = with_experts(MODEL, Experts(4, 2, 96))
NAMES = TensorNames({**GGUF_IN_PAIRS.parts, **GGUF_EXPERT_NAMES}, halves=False)
FOUR = WeightFormat("4w", 32)
SENSITIVE = {"wq", "wk", "wv", "w2"}
# Types of values that are not weights of a model, or that nothing decodes.
UNDOCUMENTED = {"F64", "I8", "I16", "I32", "I64", "Q8_1", "Q8_K", "Q1_0"}


def checkpoint(model: Architecture = MODEL, **formats: str) -> Checkpoint:
    """Return a random model with layers in these formats by their last name, and others in f32."""
    numbers, kinds = np.random.default_rng(3), {kind.name: kind for kind in TYPES.values()}
    sources = map_weights(parameter_shapes(model), model, NAMES)
    tensors = {}
    for name, source in sources.items():
        kind = kinds[formats.get(name.split(".")[-2], "F32")]
        count = int(np.prod(source.stored_shape)) // kind.weights
        data = numbers.integers(0, 60, (count, kind.bytes), dtype=np.uint8)  # all numbers are finite
        span = Span(MappedFile.from_bytes(name, data.tobytes()), 0, data.size)
        tensors[source.stored_name] = StoredTensor(name, kind, source.stored_shape, span)
    return Checkpoint(families()["llama"], model, CheckpointWeights(sources, tensors), "{}", None, None, ())


def formats_of(source: Checkpoint) -> dict[str, WeightFormat]:
    return {name.split(".")[-1]: kind for name, kind in default_recipe(source).linears.items()}


def test_sensitive_layers_of_a_float_checkpoint_have_8_bits():
    formats = formats_of(checkpoint())
    assert {name for name, kind in formats.items() if kind == INT8} == SENSITIVE | {"output"}
    assert {name for name, kind in formats.items() if kind == FOUR} == {"wo", "w1", "w3"}


def test_experts_in_mxfp4_keep_their_codes_and_scales():
    source = checkpoint(MIXED, w1="MXFP4", w2="MXFP4", w3="MXFP4")
    kinds = {name: kind for name, kind in default_recipe(source).linears.items() if ".experts." in name}
    assert len(kinds) == 2 * 4 * 3 and set(kinds.values()) == {MXFP4}
    assert MXFP4.bits_per_weight(64) == 4.25
    weights = ProgramWeights(source)
    for name in kinds:
        codes, scales = weights.codes(name, MXFP4)
        values = format_named("mxfp4").numpy_rows(codes, np.ascontiguousarray(scales.T))
        assert np.allclose(values, source.weights.read(f"{name}.weight"), rtol=0, atol=2.0**-124), name  # a scale of 0
        assert weights.errors[name] == 0


@pytest.mark.parametrize("formats", [{"w1": "MXFP4", "w3": "MXFP4"}, {"w1": "Q4_0", "w2": "MXFP4", "w3": "MXFP4"}])
def test_experts_of_two_formats_are_quantized(formats):
    recipe = default_recipe(checkpoint(MIXED, **formats))
    assert {kind for name, kind in recipe.linears.items() if ".experts." in name} == {FOUR}


def test_mxfp4_scale_that_is_no_number_is_refused(monkeypatch):
    weights, name = ProgramWeights(checkpoint(MIXED, w1="MXFP4")), "layers.0.experts.0.w1"
    monkeypatch.setattr(CheckpointWeights, "codes", lambda *_: (np.zeros((1, 16), np.uint8), np.full((1, 1), 255)))
    with raises(UnsupportedError, name, code="weight_range"):
        weights.codes(name, MXFP4)


def test_layers_in_q4_0_keep_their_values():
    source = checkpoint(wq="Q4_0", wk="Q4_0", wv="Q4_0", w2="Q4_0")
    formats = formats_of(source)
    assert all(formats[name] == FOUR for name in SENSITIVE)
    weights = ProgramWeights(source)
    layer = weights.quantized("layers.1.feed_forward.w2", FOUR)
    assert np.array_equal(layer.values(), weights.read("layers.1.feed_forward.w2.weight"))


@pytest.mark.parametrize("stored", ["Q4_1", "Q4_K"])
def test_default_recipe_layers_with_offsets_keep_codes_and_scales(stored):
    source = checkpoint(w2=stored, wo=stored) if stored == "Q4_1" else checkpoint(w2=stored)
    name, weights = "layers.1.feed_forward.w2", ProgramWeights(source)
    assert formats_of(source)["w2"] == FOUR_BITS_WITH_OFFSETS
    layer, (codes, scales) = weights.quantized(name, FOUR_BITS_WITH_OFFSETS), weights.offsets(name)
    assert (codes.shape, codes.dtype, scales.shape) == ((4, 64), np.int8, (64,))  # 4 groups
    offsets = codes.T * scales[:, None]
    expected = weights.read(f"{name}.weight").reshape(64, 4, 32)
    error = np.abs(layer.values().reshape(64, 4, 32) + offsets[..., None] - expected)
    assert (error <= np.abs(offsets).max(axis=1)[:, None, None] / 200 + 1e-6).all()


@pytest.mark.parametrize("stored", ["Q5_1", "Q8_0"])
def test_layers_with_more_bits_in_the_checkpoint_have_8(stored):
    assert formats_of(checkpoint(wo=stored))["wo"] == INT8


def test_default_recipe_embedding_4_bit_unless_row_is_one_group():
    source = checkpoint()
    assert default_recipe(source).embedding == FOUR
    narrow = replace(source, architecture=replace(MODEL, dim=32))
    assert default_recipe(narrow).embedding == INT8


@pytest.mark.parametrize(
    ("name", "kind", "codes", "scales"),
    [
        ("layers.0.feed_forward.w1", FOUR, (128, 32), (2, 128)),
        ("layers.0.feed_forward.w2", INT8, (64, 128), (64,)),
        ("tok_embeddings", FOUR, (96, 32), (96, 2)),
        ("tok_embeddings", INT8, (96, 64), (96,)),
    ],
)
def test_codes_have_the_layout_of_the_op(name, kind, codes, scales):
    packed = ProgramWeights(checkpoint()).codes(name, kind)
    assert (packed[0].shape, packed[1].shape) == (codes, scales)


AFFINE = [kind for kind in TYPES.values() if kind.affine]


def stored_blocks(kind: TensorType, source: WeightSource) -> CheckpointWeights:
    """Return random blocks of a type as the weight `wq`."""
    rows, columns = source.shape
    blocks = np.random.default_rng(9).integers(0, 256, (rows * columns // kind.weights, kind.bytes), dtype=np.uint8)
    blocks[:, 1:4:2] &= 0x3B  # exponents of f16 numbers that are finite and below 1
    span = Span(MappedFile.from_bytes("blocks", blocks.tobytes()), 0, blocks.size)
    return CheckpointWeights({"wq": source}, {"w": StoredTensor("w", kind, (rows, columns), span)})


@pytest.mark.parametrize("kind", AFFINE, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "source",
    [
        WeightSource("w", (16, 512), heads=2, rotary_width=8, factor=0.5),
        WeightSource("w", (16, 512), tiles=(0, 2, 64), tiled_columns=True),
        WeightSource("w", (16, 512), tiles=(4, 2, 2)),
    ],
    ids=["rotated", "tiled columns", "tiled rows"],
)
def test_affine_codes_have_the_values_of_the_stored_blocks(kind: TensorType, source: WeightSource):
    """Rows that rotate are reordered, and a factor goes into steps and offsets."""
    weights = stored_blocks(kind, source)
    affine = weights.affine("wq")
    assert affine is not None
    assert np.allclose(affine.values(), weights.read("wq"), rtol=1e-6, atol=1e-6)


def test_tiled_heads_are_read_by_the_keys_that_they_share():
    """Heads of two elements; those of the first key are stored at even places. Four elements before them stay."""
    source = WeightSource("w", (16,), tiles=(4, 2, 2))
    stored = np.arange(16, dtype=np.float32)
    assert source.convert(stored).tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 6, 7, 10, 11, 14, 15]
    columns = WeightSource("w", (1, 8), tiles=(0, 2, 2), tiled_columns=True)
    assert columns.convert(stored[None, :8]).tolist() == [[0, 1, 4, 5, 2, 3, 6, 7]]
    assert WeightSource("w", (2,), rates=True).convert(-np.exp(stored[:2])) == pytest.approx([0, 1])


def test_heads_that_share_groups_have_no_codes():
    """Groups of 32 weights have those of several heads."""
    weights = stored_blocks(TYPES[2], WeightSource("w", (16, 512), tiles=(0, 2, 16), tiled_columns=True))
    assert weights.affine("wq") is None and weights.stored_type("wq") is None


def test_documented_formats_equal_recipe():
    """docs/llm-export.md has one table of formats. Each type in it has the bits and offsets that layers of it get."""
    page = (Path(__file__).parents[2] / "docs" / "llm-export.md").read_text(encoding="utf-8")
    assert page.count("| layer in the checkpoint | in the program |") == 1
    lines = page.partition("| layer in the checkpoint | in the program |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines.splitlines()]
    floats = {"other layers": "feed_forward.w1", "queries, keys, values, second feed-forward layer": "attention.wq"}
    actual = {}
    for types, cell in rows[:-2]:
        names, _, part = types.partition(": ")
        for name in names.split(", "):
            actual[name, floats.get(part, "")] = (int(cell[0]), "offsets" in cell)
    expected: dict[tuple[str, str], WeightFormat] = {}
    for kind in TYPES.values():
        if kind.name in ("F16", "BF16", "F32"):
            expected |= {(kind.name, layer): layer_format(None, f"layers.0.{layer}") for layer in floats.values()}
        elif kind.name not in UNDOCUMENTED:
            expected[kind.name, ""] = layer_format(kind, "layers.0.attention.wq")
    assert actual == {key: (kind.bits, kind == FOUR_BITS_WITH_OFFSETS) for key, kind in expected.items()}
    recipe = default_recipe(checkpoint())
    assert [int(cell[0]) for _, cell in rows[-2:]] == [recipe.embedding.bits, recipe.linears["output"].bits]
