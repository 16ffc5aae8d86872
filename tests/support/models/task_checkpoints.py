"""Checkpoints of tasks as `transformers` itself saves them: tiny, with random weights that matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers as hf

from .transformers import lively

SIDE = 32
TRANSFORMER: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
}
STAGES: dict[str, Any] = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 2, 1]}
LABELS = {number: f"class {number}" for number in range(7)}


def save(folder: Path, model: Any, processor: Any = None) -> Path:
    lively(model).save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)
    return folder


# ---------------------------------------------------------------- images

SQUARE = {"height": SIDE, "width": SIDE}
PROCESSORS: dict[str, Any] = {
    "vit": lambda: hf.ViTImageProcessorPil(size=SQUARE, resample=3),
    "swin": lambda: hf.ViTImageProcessorPil(size=SQUARE, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.25]),
    "convnext": lambda: hf.ConvNextImageProcessorPil(size={"shortest_edge": SIDE}, crop_pct=0.875),
    "resnet": lambda: hf.ConvNextImageProcessorPil(size={"shortest_edge": 384}, resample=1),
    "mobilenet_v2": lambda: hf.MobileNetV2ImageProcessorPil(size={"shortest_edge": 40}, crop_size=SQUARE, resample=0),
    "yolos": lambda: hf.YolosImageProcessorPil(size={"height": 32, "width": 48}),
    "detr": lambda: hf.DetrImageProcessorPil(
        size={"shortest_edge": 48, "longest_edge": 80}, pad_size={"height": 80, "width": 80}
    ),
}


def vision(name: str) -> Any:
    """Write an image classifier with seven classes."""
    torch.manual_seed(1)
    square = TRANSFORMER | {"image_size": SIDE, "patch_size": 8, "id2label": LABELS}
    match name:
        case "vit":
            return hf.ViTForImageClassification(hf.ViTConfig(**square))
        case "swin":
            sizes: dict[str, Any] = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
            config = hf.SwinConfig(**sizes, image_size=SIDE, patch_size=2, id2label=LABELS)
            return hf.SwinForImageClassification(config)
        case "resnet":
            return hf.ResNetForImageClassification(hf.ResNetConfig(**STAGES, embedding_size=16, id2label=LABELS))
        case "mobilenet_v2":
            config = hf.MobileNetV2Config(depth_multiplier=0.25, min_depth=8, tf_padding=False, id2label=LABELS)
            return hf.MobileNetV2ForImageClassification(config)
        case "yolos":
            other = square | {"image_size": [40, 40]}  # positions are interpolated to the size of images
            return hf.YolosForObjectDetection(hf.YolosConfig(**other, num_detection_tokens=6))
        case "detr":
            return hf.DetrForObjectDetection(_detr())
    raise ValueError(name)


def _detr() -> Any:
    stages: dict[str, Any] = {"hidden_sizes": [8, 12, 16, 24], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    return hf.DetrConfig(
        backbone_config=hf.ResNetConfig(embedding_size=8, **stages, out_features=["stage4"]),
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        num_queries=6,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        id2label=LABELS,
    )


def write_vision(folder: Path, name: str) -> Path:
    return save(folder, vision(name), PROCESSORS[name]())


# ---------------------------------------------------------------- texts

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "that", "dogs", "run", "far", "away", "from", "home", ",",
         ".", "!", ":", "query", "passage", "un", "able"]  # fmt: skip
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = (
    "The cat sat on a mat.",
    "dogs run",
    "the cat saw that dogs run far away from home, and the mat sat on the cat!",
    "unbelievable",
    "",
    "a cat a cat a cat a cat a cat a cat a cat a cat a cat a cat a cat a cat",
)


def tokenizer() -> Any:
    """WordPiece over a few words, as BERT's."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: n for n, word in enumerate([*SPECIALS, *WORDS, *(f"##{w}" for w in WORDS)])}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return hf.PreTrainedTokenizerFast(tokenizer_object=inner, **names, mask_token="[MASK]", model_max_length=48)


def encoder(name: str) -> Any:
    torch.manual_seed(2)
    sizes = TRANSFORMER | {"vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0}
    match name:
        case "bert":
            return hf.BertModel(hf.BertConfig(**sizes))
        case "roberta":
            return hf.RobertaModel(hf.RobertaConfig(**sizes))
        case "xlm-roberta":
            return hf.XLMRobertaModel(hf.XLMRobertaConfig(**sizes))
        case "mpnet":
            return hf.MPNetModel(hf.MPNetConfig(**sizes))
        case "distilbert":
            plain = {"dim": 48, "n_layers": 2, "n_heads": 3, "hidden_dim": 80}
            return hf.DistilBertModel(hf.DistilBertConfig(**plain, vocab_size=64, max_position_embeddings=64))
        case "modernbert":
            window = {"local_attention": 8, "global_attn_every_n_layers": 2, "reference_compile": False}
            return hf.ModernBertModel(hf.ModernBertConfig(**sizes, **window))
    raise ValueError(name)


def write_encoder(folder: Path, name: str, pooling: str, normalize: bool = True, dense: bool = False) -> Path:
    """As sentence-transformers saves one."""
    save(folder, encoder(name))
    tokenizer().save_pretrained(folder)
    kinds = ["Transformer", "Pooling", *(["Dense"] if dense else []), *(["Normalize"] if normalize else [])]
    modules = [
        {
            "idx": n,
            "name": str(n),
            "path": "" if n == 0 else f"{n}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for n, kind in enumerate(kinds)
    ]
    put(folder / "modules.json", modules)
    names = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "last": "lasttoken"}
    modes = {f"pooling_mode_{text}": key == pooling for key, text in names.items()}
    put(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 48, **modes})
    put(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": False})
    prompts = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": None}
    put(folder / "config_sentence_transformers.json", prompts)
    if dense:
        from safetensors.torch import save_file

        torch.manual_seed(3)
        linear = torch.nn.Linear(48, 20)
        activation = "torch.nn.modules.activation.Tanh"
        put(folder / "2_Dense" / "config.json", {"in_features": 48, "out_features": 20, "bias": True,
                                                 "activation_function": activation})  # fmt: skip
        weights = {f"linear.{key}": value.detach() for key, value in linear.state_dict().items()}
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    return folder


def put(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


# ---------------------------------------------------------------- exported

ENCODERS = {  # how each is pooled, whether to length 1, and whether a linear follows
    "bert": ("mean", True, False),
    "roberta": ("cls", False, False),
    "xlm-roberta": ("mean", True, False),
    "mpnet": ("mean", True, False),
    "distilbert": ("last", True, True),
    "modernbert": ("max", False, False),
}


def exported(name: str, **options: Any) -> Path:
    """A folder with `checkpoint` and what `webpte.export` made of it, `model.pte` and the files beside it."""
    from . import example_models

    def make(folder: Path) -> None:
        from webpte.export import export_checkpoint

        if name in ENCODERS:
            write_encoder(folder / "checkpoint", name, *ENCODERS[name])
        else:
            write_vision(folder / "checkpoint", name)
        export_checkpoint(folder / "checkpoint", folder / "model.pte", **options)

    here = Path(__file__)
    sources = [here, here.with_name("transformers.py")]
    exporter = "export/encoders" if name in ENCODERS else "export/vision"
    return example_models.cached(f"task-{name}", sources, make, json.dumps(options), exporter=[exporter])
