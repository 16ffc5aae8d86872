"""Qwen3.5: a tower whose patches rotate by row and column, over images of any size, and positions of three axes."""

from __future__ import annotations

import math

from ...errors import UnsupportedError
from ..config import Fields
from ..vision_tower import Connector, TowerKind, VisionTower

MAX_ROWS = 1024  # of an image, however many pixels its processor allows: attention grows with their square
ROPE_THETA = 10000.0
_SECTIONS = [11, 11, 10]


def read_tower(model: Fields, vision: Fields, processor: Fields) -> VisionTower:
    positions, patch, block, dim = (
        vision.integer("num_position_embeddings", 2304),
        vision.integer("patch_size", 16),
        vision.integer("spatial_merge_size", 2),
        vision.integer("hidden_size", 1152),
    )
    side = math.isqrt(positions)
    if side**2 != positions:
        raise vision.invalid("num_position_embeddings", positions, "a square number")
    if vision.get("in_channels", 3) != 3:
        raise vision.invalid("in_channels", vision.get("in_channels"), "3, the colors")
    if layers := vision.get("deepstack_visual_indexes", []):
        raise UnsupportedError(
            argument=f"{vision.where}: deepstack_visual_indexes", expected="none", got=layers, code="deepstack"
        )
    rope = vision.mapping("rope_parameters")
    if rope.get("rope_theta", ROPE_THETA) != ROPE_THETA or rope.get("rope_type", "axial") not in ("axial", "default"):
        raise vision.invalid("rope_parameters", rope, f"axial, with a base of {ROPE_THETA}")
    width = vision.integer("out_hidden_size", 3584)
    tower = VisionTower(
        patch_side=patch,
        dim=dim,
        hidden_dim=vision.integer("intermediate_size", 4304),
        n_heads=vision.integer("num_heads", 16),
        n_layers=vision.layers("depth", 27),
        norm_eps=1e-6,
        position_side=side,
        block_side=block,
        connector=Connector(width, hidden_dim=dim * block**2, bias=True),
        max_rows=_max_rows(processor, (patch * block) ** 2),
        frames=vision.integer("temporal_patch_size", 2),
        rotates=True,
        rope_sections=_sections(model.part("text_config")),
    )
    if tower.head_dim % 4:
        raise vision.invalid("num_heads", tower.n_heads, "heads whose width is a multiple of 4")
    return tower


def _max_rows(processor: Fields, pixels_of_row: int) -> int:
    """Return the most rows of an image within the pixels that its processor allows."""
    size = processor.get("size", {})
    pixels = processor.get("max_pixels", size.get("longest_edge") if isinstance(size, dict) else None)
    rows = pixels // pixels_of_row if type(pixels) is int else MAX_ROWS
    return max(1, min(rows, MAX_ROWS))


def _sections(text: Fields) -> tuple[int, int, int]:
    """Return the pairs of a head that rotate by each axis, which are interleaved."""
    rope = text.mapping("rope_parameters") or text.mapping("rope_scaling")
    sections = rope.get("mrope_section", _SECTIONS)
    if not isinstance(sections, list) or len(sections) != 3 or not all(type(each) is int for each in sections):
        raise text.invalid("rope_parameters", rope, "an mrope_section of three integers")
    if not rope.get("mrope_interleaved", True) or min(sections) < 0:
        raise text.invalid("rope_parameters", rope, "sections that are interleaved")
    return sections[0], sections[1], sections[2]


_VISUAL, _BLOCK = "model.visual", "model.visual.blocks.{}"
TOWER = TowerKind(
    models="Qwen3.5",
    model_types=("qwen3_5",),
    classes=("Qwen3_5ForConditionalGeneration",),
    config=read_tower,
    names={
        "vision.patches": f"{_VISUAL}.patch_embed.proj",
        "vision.positions": f"{_VISUAL}.pos_embed",
        "vision.layers.{}.wq": f"{_BLOCK}.attn.qkv",
        "vision.layers.{}.wk": f"{_BLOCK}.attn.qkv",
        "vision.layers.{}.wv": f"{_BLOCK}.attn.qkv",
        "vision.layers.{}.wo": f"{_BLOCK}.attn.proj",
        "vision.layers.{}.w1": f"{_BLOCK}.mlp.linear_fc1",
        "vision.layers.{}.w2": f"{_BLOCK}.mlp.linear_fc2",
        "vision.layers.{}.norm1": f"{_BLOCK}.norm1",
        "vision.layers.{}.norm2": f"{_BLOCK}.norm2",
        "vision.norm": f"{_VISUAL}.merger.norm",
        "vision.connector.w1": f"{_VISUAL}.merger.linear_fc1",
        "vision.connector.w2": f"{_VISUAL}.merger.linear_fc2",
    },
    tensors=r"model\.visual\.",
    text_defaults={"model_type": "qwen3_5_text"},
)
