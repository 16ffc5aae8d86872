"""Export a tiny Gemma 3 with its image encoder by optimum-executorch: `python -m tests.studies
exporters.optimum_multimodal`.

It runs in the environment of `tests.studies.exporters.optimum`. Beside each program are its tokenizer, template and
image
processor, and a `.json` file: the ids of a prompt with an image, and the tokens that ExecuTorch's runtime continues it
with, called as its multimodal runner calls the methods.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models.tiny_vlm import CHARACTERS, picture, write_files

KINDS: dict[str, dict[str, Any]] = {
    "multimodal_plain": {},
    "multimodal_custom_cache": {"use_custom_sdpa": True, "use_custom_kv_cache": True},
}
SIDE, CONTEXT, TOKENS, ROWS = 28, 64, 20, 4
SPECIAL = ["<start_of_image>", "<image_soft_token>", "<end_of_image>", "<end_of_utterance>"]
IMAGE_TOKEN = len(CHARACTERS) + 1
PROCESSOR = {
    "image_processor_type": "Gemma3ImageProcessor",
    "size": {"height": SIDE, "width": SIDE},
    "resample": 2,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
PROMPT = f"User:\n\n{SPECIAL[0]}{SPECIAL[1]}{SPECIAL[2]}\n\nwhat?{SPECIAL[3]}\nAssistant:"


def prompt_ids() -> list[int]:
    """Return the ids of the prompt, with as many image tokens as the encoder has rows."""
    ids: list[int] = []
    text = PROMPT
    while text:
        name = next((name for name in SPECIAL if text.startswith(name)), text[0])
        token = len(CHARACTERS) + SPECIAL.index(name) if name in SPECIAL else CHARACTERS.index(name)
        ids += [token] * (ROWS if name == SPECIAL[1] else 1)
        text = text.removeprefix(name)
    return ids


def pixels() -> np.ndarray:
    """Return the encoder's input as transformers computes it."""
    from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor

    fields = {name: value for name, value in PROCESSOR.items() if name != "image_processor_type"}
    return np.asarray(Gemma3ImageProcessor(**fields)(picture(1), return_tensors="np")["pixel_values"], np.float32)


def write(kind: str, folder: Path) -> None:
    import torch
    from optimum.exporters.executorch import export_to_executorch, integrations
    from optimum.exporters.executorch.tasks.multimodal_text_to_text import load_multimodal_text_to_text_model
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    torch.manual_seed(0)
    text = {
        "vocab_size": len(CHARACTERS) + len(SPECIAL), "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 8,
        "max_position_embeddings": 128, "sliding_window": CONTEXT, "bos_token_id": 1, "eos_token_id": 2,
        "layer_types": ["full_attention"] * 2,
    }  # fmt: skip
    tower = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": SIDE, "patch_size": 7,
    }  # fmt: skip
    config = Gemma3Config(
        text_config=text, vision_config=tower, mm_tokens_per_image=ROWS, image_token_index=IMAGE_TOKEN,
        boi_token_index=IMAGE_TOKEN - 1, eoi_token_index=IMAGE_TOKEN + 1,
    )  # fmt: skip
    model = Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            spread = 0.05 if "embed_tokens" in name else 0.3  # otherwise a token is always followed by itself
            weight.normal_(0, spread) if weight.dim() > 1 else weight.uniform_(-0.3, 0.3)
    inputs = torch.tensor(pixels())
    # Its own inputs are those of an image that it downloads.
    integrations.VisionExportableModule.prepare_export_inputs = lambda self: (inputs, None)
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(f"{temporary}/model")
        exportable = load_multimodal_text_to_text_model(f"{temporary}/model", max_length=CONTEXT, **KINDS[kind])
        export_to_executorch(exportable, "image-text-to-text", "xnnpack", temporary)
        data = Path(temporary, "model.pte").read_bytes()
    (folder / f"{kind}.pte").write_bytes(data)
    (folder / f"{kind}.json").write_text(json.dumps({"tokens": _continue(data, inputs)}) + "\n")
    write_files(folder, SPECIAL, PROCESSOR)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("<image>", SPECIAL[0]))


def _continue(program: bytes, image: Any) -> list[int]:
    import torch
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
    from executorch.extension.pybindings import portable_lib
    from executorch.kernels import quantized  # noqa: F401

    module = portable_lib._load_for_executorch_from_buffer(program)
    ids = torch.tensor([prompt_ids()])
    embeddings = module.run_method("token_embedding", (ids,))[0]
    rows = module.run_method("vision_encoder", (image,))[0]
    embeddings[ids == IMAGE_TOKEN] = rows.reshape(-1, rows.shape[-1])
    tokens: list[int] = []
    position = 0
    while len(tokens) < TOKENS:
        positions = torch.arange(position, position + embeddings.shape[1])
        logits = module.run_method("text_decoder", (embeddings.contiguous(), positions))[0]
        position += embeddings.shape[1]
        tokens.append(int(logits[0, -1].argmax()))
        embeddings = module.run_method("token_embedding", (torch.tensor([tokens[-1:]]),))[0]
    return tokens


if __name__ == "__main__":
    for kind in KINDS:
        write(kind, Path(sys.argv[1]))
        print(kind, flush=True)
