"""A tiny SmolVLM as transformers saves it: tiles of 16 pixels, four rows of embeddings each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.models.families import COMMON

if TYPE_CHECKING:
    from PIL import Image
    from transformers import PreTrainedModel

SIDE, ROWS, CONTEXT = 16, 4, 200
SPECIAL = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
SPECIAL += [f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)]
CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n"]
VOCABULARY = len(CHARACTERS) + len(SPECIAL)
PROCESSOR = {
    "image_processor_type": "SmolVLMImageProcessor",
    "size": {"longest_edge": 2 * SIDE},
    "max_image_size": {"longest_edge": SIDE},
    "resample": 1,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}Assistant:"
)


def picture(seed: int, height: int = 40, width: int = 56) -> Image.Image:
    """Return an image of random pixels."""
    from PIL import Image

    random = np.random.default_rng(seed)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


def write_vlm(folder: Path, **changes: Any) -> PreTrainedModel:
    """Write the checkpoint with random weights, and return it. `changes` are fields of its config."""
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0}
    text = {**COMMON, "model_type": "llama", "vocab_size": VOCABULARY, "rope_parameters": rope}
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    tower |= {"image_size": SIDE, "patch_size": 4}
    fields = {"text_config": text, "vision_config": tower, "scale_factor": 2, "image_token_id": len(CHARACTERS)}
    config = SmolVLMConfig(**{**fields, **changes})
    return write_checkpoint(folder, SmolVLMForConditionalGeneration, config, SPECIAL, PROCESSOR)


def write_checkpoint(
    folder: Path, kind: Any, config: Any, special: list[str], processor: dict[str, Any], shown: str = "<image>"
) -> Any:
    """Write a model of a config with random weights, its tokenizer and its image processor; return the model.

    Its chat template renders `shown` for an image.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(67280421310721)  # torch's default; some weights stay as the model draws them
        model = kind._from_config(config, attn_implementation="eager").eval()
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.rand(weight.shape, generator=random) - 0.5)
            else:
                weight.copy_(torch.randn(weight.shape, generator=random) * weight[0].numel() ** -0.5)
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    write_files(folder, special, processor, shown)
    return model


def build_vlm(folder: Path, program: Path) -> Path:
    """Build the program of the checkpoint in f32."""
    from webpte.builder import build_program

    return build_program(folder, program, quantize=None, max_context=CONTEXT, max_tokens=24)


def write_files(folder: Path, special: list[str], processor: dict[str, Any], shown: str = "<image>") -> None:
    """Write the tokenizer, the chat template and the image processor."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {text: number for number, text in enumerate(CHARACTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("<image>", shown))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
