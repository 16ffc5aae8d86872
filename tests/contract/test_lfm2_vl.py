"""LFM2-VL: the logits and the greedy tokens of transformers for images of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.conversations import TOLERANCE, character_ids, check_conversation, image, rendered, text
from tests.support.harness.errors import raises
from tests.support.models.tiny_lfm2_vl import BLOCK, PATCH, PROCESSOR, SPECIAL, write_lfm2_vl
from tests.support.models.tiny_vlm import picture
from webpte.builder import build_program
from webpte.errors import FormatError, InputError, UnsupportedError
from webpte.llm import LLM
from webpte.llm.image_processor import image_processor

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "no image": [{"role": "user", "content": "what is it?"}],
    "one image": [{"role": "user", "content": [image(1, 24, 30), text("what is it?")]}],
    "two images": [{"role": "user", "content": [image(1, 40, 56), text("and"), image(2, 9, 20), text("which?")]}],
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lfm2-vl")
    return folder, write_lfm2_vl(folder)


@pytest.fixture(scope="module")
def program(checkpoint):
    folder, _ = checkpoint
    return build_program(folder, folder / "vlm.pte", quantize=None, max_context=200, max_tokens=24)


@pytest.fixture(scope="module")
def encoder(program):
    with webpte.load(program) as loaded:
        yield loaded.method("vision_encoder")


@pytest.fixture(scope="module")
def llm(program):
    with LLM.load(program) as model:
        model.stop_tokens = frozenset()
        yield model


def raster(pixels: Any) -> tuple[Any, tuple[int, int]]:
    """Return the patches of an image row by row, as transformers' processor orders them, and their rows and columns."""
    values = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
    height, width = (side // PATCH for side in pixels.shape[1:])
    split = values.reshape(3, height, PATCH, width, PATCH).transpose(1, 3, 2, 4, 0)
    return split.reshape(height * width, -1), (height, width)


def transformers_inputs(messages: list[Any]) -> dict[str, Any]:
    """Return the inputs of transformers' model. Each tile has an image token for each of its rows."""
    processor = image_processor("here", PROCESSOR)
    prompt, images = rendered(messages, "<image>")
    tiles = [processor(each) for each in images]
    for each in tiles:
        prompt = prompt.replace("<image>", processor.text(each).replace("<image>", "\0"), 1)
    pixels = [pixels for each in tiles for pixels in each.pixels]
    for part in pixels:
        rows = part.shape[1] * part.shape[2] // (PATCH * BLOCK) ** 2
        prompt = prompt.replace("\0", "<image>" * rows, 1)
    inputs = {"input_ids": torch.tensor([character_ids(prompt, SPECIAL)])}
    if not pixels:
        return inputs
    patches, shapes = zip(*map(raster, pixels), strict=True)
    most = max(map(len, patches))
    padded = np.stack([np.pad(each, ((0, most - len(each)), (0, 0))) for each in patches])
    mask = np.stack([np.arange(most) < len(each) for each in patches]).astype(np.int64)
    return inputs | {
        "pixel_values": torch.tensor(padded),
        "pixel_attention_mask": torch.tensor(mask),
        "spatial_shapes": torch.tensor(shapes),
    }


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation_logits_and_greedy_tokens_equal_transformers(name, checkpoint, llm):
    _, model = checkpoint
    check_conversation(llm, model, CONVERSATIONS[name], transformers_inputs(CONVERSATIONS[name]))


@pytest.mark.parametrize("size", [(8, 24), (16, 16), (48, 8), (16, 24)])
def test_vision_encoder_rows_equal_transformers(size, checkpoint, encoder):
    """For images that are smaller and larger than the table of positions in either direction."""
    _, model = checkpoint
    pixels = np.asarray(picture(4, *size)).transpose(2, 0, 1)
    patches, shape = raster(pixels)
    with torch.no_grad():
        features = model.get_image_features(
            torch.tensor(patches)[None], torch.tensor([shape]), torch.ones(1, len(patches), dtype=torch.long)
        )
    expected = features.pooler_output[0].numpy()
    processor = image_processor("here", PROCESSOR).for_encoder("here", [each.bound for each in encoder.inputs])
    rows = np.array(encoder(*processor.arguments(pixels)))
    assert rows.shape == (1, processor.rows(pixels, 6), 64)
    assert np.abs(rows[0] - expected).max() <= TOLERANCE


# Of transformers' processor: height and width -> rows and columns of patches of the last part, and those of tiles.
DEFAULT = {"image_processor_type": "Lfm2VlImageProcessorFast"}
SIZES = {
    (20, 20): (16, 16, 1, 1),
    (100, 30): (30, 10, 1, 1),
    (300, 400): (18, 24, 1, 1),
    (512, 512): (32, 32, 1, 1),
    (640, 480): (36, 26, 1, 1),
    (730, 730): (32, 32, 2, 2),
    (1080, 1920): (24, 42, 2, 4),
    (1500, 400): (60, 16, 4, 1),
    (90, 1400): (6, 88, 1, 1),
}


@pytest.mark.parametrize("size", SIZES)
def test_image_is_resized_and_split_as_transformers_does(size):
    height, width, rows, columns = SIZES[size]
    tiles = image_processor("here", DEFAULT)(picture(1, *size))
    assert tiles.pixels[-1].shape == (3, 16 * height, 16 * width)
    assert (tiles.rows or 1, tiles.columns or 1) == (rows, columns)
    assert len(tiles.pixels) == rows * columns + (rows * columns > 1)


def test_tiles_equal_transformers():
    """Of 50 random sizes: as many patches, and values within a grey level."""
    pytest.importorskip("torchvision")
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor

    theirs = Lfm2VlImageProcessor(
        **{name: value for name, value in PROCESSOR.items() if name != "image_processor_type"}
    )
    ours = image_processor("here", PROCESSOR)
    for height, width in np.random.default_rng(3).integers(16, 180, (50, 2)):
        shown = picture(int(height) * 1000 + int(width), int(height), int(width))
        expected = theirs(shown, return_tensors="np")
        patches, shapes = zip(*map(raster, ours(shown).pixels), strict=True)
        assert [*shapes] == [tuple(shape) for shape in expected["spatial_shapes"]]
        for mine, other in zip(patches, expected["pixel_values"], strict=True):
            assert np.abs(mine - other[: len(mine)]).max() <= 1.001 / 255 / 0.5


def test_image_of_extreme_proportions_is_refused():
    with raises(InputError, "2 x 9000", 256, code="image_proportions"):
        image_processor("here", DEFAULT)(picture(1, 9000, 2))


@pytest.mark.parametrize(
    ("field", "value"),
    [("tile_size", 500), ("max_tiles", 65), ("min_tiles", 1), ("max_pixels_tolerance", 0.5), ("use_thumbnail", 1)],
)
def test_patch_processor_other_declaration_is_refused(field, value):
    with raises(FormatError, field, code="invalid_field"):
        image_processor("here", {**DEFAULT, field: value})


def test_fields_of_a_processor_that_are_not_applied_are_named(caplog):
    image_processor("here", {**DEFAULT, "processor_class": "x", "video_size": {"longest_edge": 5}})
    assert not caplog.records
    image_processor("here", {**DEFAULT, "gamma": 2.2, "temporal_patch_size": 4})
    assert "gamma = 2.2: an unknown field" in caplog.text and "temporal_patch_size = 4" in caplog.text
    with raises(UnsupportedError, "do_center_crop", code="image_processor"):
        image_processor("here", {**DEFAULT, "do_center_crop": True})


def test_processor_of_another_encoder_is_refused():
    processor = image_processor("here", PROCESSOR)
    with raises(FormatError, "here", code="other_export"):
        processor.for_encoder("here", [(6, 4 * 48), (7, 4 * 9)])


def test_images_of_one_content_and_two_shapes_are_different(llm):
    white = [np.full((3, *size), 255, np.uint8) for size in ((16, 24), (24, 16))]
    prompts = [llm.generate([{"role": "user", "content": [shown(each)]}], max_new_tokens=1).prompt for each in white]
    assert len(prompts[0]) == len(prompts[1]) and prompts[0] != prompts[1]


def shown(pixels: Any) -> dict[str, Any]:
    return {"type": "image", "image": pixels.transpose(1, 2, 0)}
