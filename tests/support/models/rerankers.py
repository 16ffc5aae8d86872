"""Tiny cross-encoders as folders of transformers, and what `webpte export` makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import processors

from . import example_models
from .task_checkpoints import TRANSFORMER, save, tokenizer

MAX_PAIR_TOKENS = 24


def reranker(name: str) -> Any:
    """Return a "bert", which has segments, or an "xlm-roberta"."""
    torch.manual_seed(5)
    sizes = TRANSFORMER | {"vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0, "num_labels": 1}
    if name == "bert":
        return hf.BertForSequenceClassification(hf.BertConfig(**sizes))
    return hf.XLMRobertaForSequenceClassification(hf.XLMRobertaConfig(**sizes, type_vocab_size=1))


def write_reranker(folder: Path, name: str) -> Path:
    save(folder, reranker(name))
    words = tokenizer()
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    words.save_pretrained(folder)
    return folder


def exported_reranker(name: str) -> Path:
    """Return a folder with `checkpoint` and what `webpte.export` made of it, `model.pte` and the files beside it."""

    def make(folder: Path) -> None:
        from webpte.export import export_checkpoint

        write_reranker(folder / "checkpoint", name)
        export_checkpoint(folder / "checkpoint", folder / "model.pte", max_tokens=MAX_PAIR_TOKENS)

    here = Path(__file__)
    sources = [here, here.with_name("task_checkpoints.py"), here.with_name("transformers.py")]
    options = json.dumps({"max_tokens": MAX_PAIR_TOKENS})
    return example_models.cached(f"reranker-{name}", sources, make, options, exporter=["export/encoders"])
