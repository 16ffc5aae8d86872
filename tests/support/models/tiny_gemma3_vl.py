"""A tiny Gemma 3 as transformers saves it: an image is nine rows, more than a window of the decoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.models.families import COMMON
from tests.support.models.tiny_vlm import CHARACTERS, write_checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIDE, BLOCK, ROWS, WINDOW = 24, 2, 9, 4
SPECIAL = ["<image_soft_token>", "<start_of_image>", "<end_of_image>", "<end_of_utterance>"]
SHOWN = "<start_of_image>"  # of an image in a chat
PROCESSOR = {
    "image_processor_type": "Gemma3ImageProcessor",
    "size": {"height": SIDE, "width": SIDE},
    "resample": 2,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


def write_gemma3_vl(folder: Path) -> PreTrainedModel:
    """Write the checkpoint with random weights, and return it."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    layers = ["sliding_attention", "full_attention"]
    text = {**COMMON, "model_type": "gemma3_text", "head_dim": 24, "sliding_window": WINDOW, "layer_types": layers}
    text |= {"vocab_size": len(CHARACTERS) + len(SPECIAL), "query_pre_attn_scalar": 11}
    tower: dict[str, Any] = {"model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48}
    tower |= {"num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 4, "image_size": SIDE}
    first = len(CHARACTERS)
    config = Gemma3Config(
        text_config=text,
        vision_config=tower,
        mm_tokens_per_image=ROWS,
        image_token_index=first,
        boi_token_index=first + 1,
        eoi_token_index=first + 2,
    )
    return write_checkpoint(folder, Gemma3ForConditionalGeneration, config, SPECIAL, PROCESSOR, SHOWN)
