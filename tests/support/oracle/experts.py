"""The feed-forward of a layer: one for all tokens, a mixture of experts, or both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from webpte.checkpoints.architecture import Architecture, Experts

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
    "relu2": lambda x: functional.relu(x).square(),
}


class FeedForward(nn.Module):
    """A feed-forward, with a gate or without one."""

    def __init__(self, model: Architecture, hidden_dim: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS.get(model.activation, self.xielu)
        if model.activation == "xielu":
            self.alpha_p, self.alpha_n = (nn.Parameter(torch.zeros(1, device="cpu")) for _ in range(2))
        self.w1 = nn.Linear(model.dim, hidden_dim, bias=model.mlp_bias) if model.gated_mlp else None
        self.w2 = nn.Linear(hidden_dim, model.dim, bias=model.mlp_bias)
        self.w3 = nn.Linear(model.dim, hidden_dim, bias=model.mlp_bias)

    def xielu(self, x: Tensor) -> Tensor:
        out: Tensor = torch.where(x > 0, self.alpha_p * x * x, (torch.expm1(x) - x) * self.alpha_n) + 0.5 * x
        return out

    def forward(self, x: Tensor) -> Tensor:
        up = self.w3(x)
        out: Tensor = self.w2(self.activation(up) if self.w1 is None else self.activation(self.w1(x)) * up)
        return out


class Expert(nn.Module):
    """A gated feed-forward of some tokens."""

    def __init__(self, model: Architecture, experts: Experts) -> None:
        super().__init__()
        self.activation = ACTIVATIONS.get(model.activation)
        hidden_dim, bias = experts.hidden_dim, experts.linear_bias
        self.w1 = nn.Linear(model.dim, hidden_dim, bias=bias)
        self.w2 = nn.Linear(hidden_dim, model.dim, bias=bias)
        self.w3 = nn.Linear(model.dim, hidden_dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.w1(x), self.w3(x)
        if self.activation is None:  # of gpt-oss
            gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0) + 1
        gated = gate * (1.702 * gate).sigmoid() if self.activation is None else self.activation(gate)
        out: Tensor = self.w2(gated * up)
        return out


class Router(nn.Linear):
    """Chooses experts by their scores."""

    def __init__(self, model: Architecture, experts: Experts) -> None:
        super().__init__(model.dim, experts.count, bias=experts.linear_bias)
        self.experts = experts
        self.expert_bias = nn.Parameter(torch.zeros(experts.count)) if experts.biased else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the numbers of the chosen experts of each row."""
        logits = super().forward(x)
        scores = logits.softmax(-1) if self.experts.scoring == "softmax" else logits.sigmoid()
        ids = (scores if self.expert_bias is None else scores + self.expert_bias).topk(self.experts.chosen).indices
        weights = scores.gather(-1, ids)
        if self.experts.normalized:
            weights = weights / (weights.sum(-1, keepdim=True) + self.experts.eps)
        return weights * self.experts.factor, ids


class FedBlock(nn.Module):
    """A block with the feed-forward of a layer."""

    def __init__(self, model: Architecture, number: int) -> None:
        super().__init__()
        mixture = model.layers[number].experts
        dense = mixture is None or mixture.shared
        self.feed_forward = FeedForward(model, model.hidden_width(number)) if dense else None
        self.router = None if mixture is None else Router(model, mixture)
        experts = [] if mixture is None else [Expert(model, mixture) for _ in range(mixture.count)]
        self.experts = nn.ModuleList(experts)
        gated = mixture is not None and mixture.shared_gate
        self.shared_gate = nn.Linear(model.dim, 1, bias=False) if gated else None

    def fed_forward(self, x: Tensor) -> Tensor:
        """Return the result of the layer's feed-forward and experts for (1, S, N)."""
        dense = None if self.feed_forward is None else self.feed_forward(x)
        if self.shared_gate is not None:
            dense = dense * self.shared_gate(x).sigmoid()
        if self.router is None:
            return dense
        rows = []
        for row in x[0]:
            weights, ids = self.router(row)
            rows.append(sum(weight * self.experts[i](row) for weight, i in zip(weights, ids.tolist(), strict=True)))
        mixed = torch.stack(rows)[None]
        return mixed if dense is None else mixed + dense
