"""A tiny Qwen3.5 as transformers saves it: blocks of 2 x 2 patches of 4 pixels, and positions of three axes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.models.families import COMMON, tinies
from tests.support.models.tiny_vlm import CHARACTERS, write_checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PATCH, BLOCK, ROWS = 4, 2, 24  # the last of an image, at most
SPECIAL = ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>", "<end_of_utterance>"]
SHOWN = "<|vision_start|><|image_pad|><|vision_end|>"  # of an image in a chat
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "patch_size": PATCH,
    "temporal_patch_size": 2,
    "merge_size": BLOCK,
    "size": {"shortest_edge": 4 * 64, "longest_edge": ROWS * 64},
    "resample": 3,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


def write_qwen3_5_vl(folder: Path) -> PreTrainedModel:
    """Write the checkpoint with random weights, and return it."""
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    tiny = tinies()["qwen3_5"]["shared keys"]
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    rope |= {"mrope_section": [2, 2, 2], "mrope_interleaved": True}
    text = {**COMMON, **tiny.fields, "rope_parameters": rope, "vocab_size": len(CHARACTERS) + len(SPECIAL)}
    tower = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "out_hidden_size": 64}
    tower |= {"patch_size": PATCH, "spatial_merge_size": BLOCK, "num_position_embeddings": 9}
    first = len(CHARACTERS)
    config = Qwen3_5Config(
        text_config=text,
        vision_config=tower,
        image_token_id=first,
        vision_start_token_id=first + 1,
        vision_end_token_id=first + 2,
        video_token_id=first + 3,
    )
    return write_checkpoint(folder, Qwen3_5ForConditionalGeneration, config, SPECIAL, PROCESSOR, SHOWN)
