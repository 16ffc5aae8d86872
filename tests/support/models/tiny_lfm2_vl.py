"""A tiny LFM2-VL as transformers saves it: tiles of 16 pixels, blocks of 2 x 2 patches of 4 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.models.families import COMMON, tinies
from tests.support.models.tiny_vlm import CHARACTERS, write_checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PATCH, BLOCK = 4, 2
SPECIAL = ["<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<end_of_utterance>"]
SPECIAL += [f"<|img_row_{row}_col_{column}|>" for row in range(1, 4) for column in range(1, 4)]
PROCESSOR = {
    "image_processor_type": "Lfm2VlImageProcessorFast",
    "encoder_patch_size": PATCH,
    "downsample_factor": BLOCK,
    "min_image_tokens": 3,
    "max_image_tokens": 6,
    "tile_size": 16,
    "max_tiles": 3,
    "resample": 2,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


def write_lfm2_vl(folder: Path) -> PreTrainedModel:
    """Write the checkpoint with random weights, and return it."""
    from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

    tiny = tinies()["lfm2"]["three taps"]
    text = {**COMMON, **tiny.fields, "model_type": "lfm2", "vocab_size": len(CHARACTERS) + len(SPECIAL)}
    tower: dict[str, Any] = {"model_type": "siglip2_vision_model", "hidden_size": 32, "intermediate_size": 48}
    tower |= {"num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": PATCH, "num_patches": 9}
    config = Lfm2VlConfig(
        text_config=text,
        vision_config=tower,
        projector_hidden_size=40,
        downsample_factor=BLOCK,
        image_token_id=len(CHARACTERS),
    )
    return write_checkpoint(folder, Lfm2VlForConditionalGeneration, config, SPECIAL, PROCESSOR)
