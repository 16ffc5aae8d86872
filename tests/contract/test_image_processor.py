"""Images as tiles: the pixels of transformers' processor, and the text of its prompts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.models.tiny_vlm import picture
from webpte.errors import FormatError, UnsupportedError
from webpte.llm.image_processor import Tiles, image_processor, read_image_processor
from webpte.llm.image_processors.idefics3 import TileProcessor

CONFIG = {
    "image_processor_type": "Idefics3ImageProcessor",
    "size": {"longest_edge": 96},
    "max_image_size": {"longest_edge": 32},
    "resample": 1,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5, 0.25, 0.5],
    "image_std": [0.5, 0.5, 0.75],
}
SIZES = [(int(height), int(width)) for height, width in np.random.default_rng(3).integers(1, 180, (50, 2))]


@pytest.mark.parametrize("split", [True, False])
def test_tiles_equal_transformers(split):
    """Of 50 random sizes: as many rows and columns, and values within a grey level."""
    smolvlm = pytest.importorskip("transformers.models.smolvlm.image_processing_pil_smolvlm")
    fields = {name: value for name, value in CONFIG.items() if name != "image_processor_type"}
    theirs = smolvlm.SmolVLMImageProcessorPil(**fields, do_image_splitting=split, return_row_col_info=True)
    ours = image_processor("here", {**CONFIG, "do_image_splitting": split})
    for height, width in SIZES:
        image = picture(height * 1000 + width, height, width)
        expected = theirs(image, return_tensors="np")
        tiles = ours(image)
        assert (tiles.rows, tiles.columns) == (expected["rows"][0][0], expected["cols"][0][0])
        values = np.stack([ours.normalized(pixels) for pixels in tiles.pixels])
        assert values.shape == expected["pixel_values"][0].shape
        assert np.abs(values - expected["pixel_values"][0]).max() <= 1 / 255 / 0.5


def test_text_of_tiles_equals_transformers():
    processing = pytest.importorskip("transformers.models.smolvlm.processing_smolvlm")
    processor = image_processor("here", CONFIG)
    tile = np.zeros((3, 32, 32), np.uint8)
    for rows, columns in ((0, 0), (1, 2), (3, 2)):
        expected = processing.get_image_prompt_string(
            rows, columns, 1, "<fake_token_around_image>", "<image>", "<global-img>"
        )
        assert processor.text(Tiles((tile,) * (rows * columns + 1), rows, columns)) == expected


@pytest.mark.parametrize(
    ("changes", "kind", "code"),
    [
        ({"image_processor_type": "CLIPImageProcessor"}, UnsupportedError, "image_processor"),
        ({"do_normalize": False}, UnsupportedError, "image_processor"),
        ({"resample": 9}, FormatError, "invalid_field"),
        ({"size": {"longest_edge": 1 << 20}}, FormatError, "invalid_field"),
        ({"max_image_size": 32}, FormatError, "invalid_field"),
        ({"image_std": [0.5, 0, 0.5]}, FormatError, "invalid_field"),
        ({"image_mean": [0.5, float("nan"), 0.5]}, FormatError, "invalid_field"),
        ({"rescale_factor": "1"}, FormatError, "invalid_field"),
    ],
)
def test_image_processor_other_declaration_is_refused(changes, kind, code):
    with raises(kind, next(iter(changes)), code=code):
        image_processor("here", {**CONFIG, **changes})


def test_image_processor_is_read_from_its_file(tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**CONFIG, "image_processor_type": "SmolVLMImageProcessorFast"}))
    steps: dict[str, Any] = {"resample": "lanczos", "scale": 1 / 255, "mean": (0.5, 0.25, 0.5), "std": (0.5, 0.5, 0.75)}
    assert read_image_processor(path) == TileProcessor(**steps, side=32, longest_side=96, split=True)
    path.write_text("[1")
    with raises(FormatError, path, code="invalid_json"):
        read_image_processor(path)


SQUARE = {**CONFIG, "image_processor_type": "Gemma3ImageProcessor", "size": {"height": 28, "width": 28}, "resample": 2}


def test_square_equals_transformers():
    """Of 50 random sizes: values within a grey level."""
    gemma3 = pytest.importorskip("transformers.models.gemma3.image_processing_pil_gemma3")
    fields = {name: value for name, value in SQUARE.items() if name not in ("image_processor_type", "max_image_size")}
    theirs = gemma3.Gemma3ImageProcessorPil(**fields)
    ours = image_processor("here", SQUARE).for_encoder("here", [(1, 3, 28, 28)])
    for height, width in SIZES:
        image = picture(height * 1000 + width, height, width)
        tiles = ours(image)
        (values,) = ours.arguments(tiles.pixels[0])
        expected = theirs(image, return_tensors="np")["pixel_values"]
        assert values.shape == expected.shape and np.abs(values - expected).max() <= 1 / 255 / 0.5
        assert ours.text(tiles) == "\n\n<start_of_image><image_soft_token><end_of_image>\n\n"


@pytest.mark.parametrize(
    ("changes", "kind", "code"),
    [
        ({"do_pan_and_scan": True}, UnsupportedError, "image_processor"),
        ({"size": {"height": 28, "width": 14}}, FormatError, "invalid_field"),
        ({"size": {"longest_edge": 28}}, FormatError, "invalid_field"),
    ],
)
def test_square_other_declaration_is_refused(changes, kind, code):
    with raises(kind, next(iter(changes)), code=code):
        image_processor("here", {**SQUARE, **changes})
    with raises(FormatError, "28", code="other_export"):
        image_processor("here", SQUARE).for_encoder("here", [(1, 3, 14, 14)])
