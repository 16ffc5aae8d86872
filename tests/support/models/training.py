"""A classifier of two 4-bit layers, trained: full-precision latent weights, codes made of them after every step.

ExecuTorch has the ops for it, but two gates are in their way: its partitioner delegates no bytes but constants, and
torch does not trace an op that returns what it writes. Both are opened here; the file is the exporter's own.
"""

from __future__ import annotations

import torch
from torch import nn

from ..export.lowering import Inputs, Method, Model

BATCH, INPUTS, HIDDEN, CLASSES, GROUP = 24, 32, 48, 8, 16
RATE, DECAY = 0.01, 0.05
OPTIMIZER = (RATE, 0.9, 0.99, 1e-8, DECAY, 1.0, 1.0)  # without bias correction, which would change at every step


def open_gates() -> None:
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  # defines torch.ops.et_vk
    import torch._higher_order_ops.auto_functionalize as functionalize
    from executorch.backends.vulkan.op_registry import vulkan_supported_ops
    from executorch.exir.dialects._ops import ops as exir_ops

    edge = exir_ops.edge.et_vk
    for op in (edge.linear_q4gsw, edge.linear_q4gsw_backward, edge.q4gsw_requant):
        features = vulkan_supported_ops[op.default]
        features.inputs_dtypes.vals = features.outputs_dtypes.vals = [set()]
    usual = functionalize.can_auto_functionalize
    if getattr(usual, "opened", False):
        return

    def can_auto_functionalize(op):
        return op is torch.ops.et_vk.adamw_step.default or usual(op)

    can_auto_functionalize.opened = True  # type: ignore[attr-defined]
    functionalize.can_auto_functionalize = can_auto_functionalize


class Forward(nn.Module):
    def forward(self, x, codes1, scales1, codes2, scales2):
        linear = torch.ops.et_vk.linear_q4gsw
        hidden = torch.relu(linear(x, codes1, scales1, GROUP))  # (B, HIDDEN)
        return hidden, linear(hidden, codes2, scales2, GROUP)  # (B, CLASSES)


class Loss(nn.Module):
    def forward(self, logits, labels):
        return torch.ops.et_vk.fused_ce(logits, labels, float(BATCH))


class Backward(nn.Module):
    def forward(self, d_logits, x, hidden, codes2, scales2):
        ops = torch.ops.et_vk
        d_hidden = ops.linear_q4gsw_backward(d_logits, codes2, scales2, GROUP)
        d_hidden = torch.where(hidden > 0, d_hidden, torch.zeros_like(d_hidden))
        return ops.linear_dW(d_hidden, x), ops.linear_dW(d_logits, hidden)


class Step(nn.Module):
    """Writes the latent weight and its moments, and gives the new codes."""

    def forward(self, latent, m, v, gradient, scales):
        torch.ops.et_vk.adamw_step(latent, m, v, gradient, *OPTIMIZER)
        return torch.ops.et_vk.q4gsw_requant(latent, scales, GROUP)


class Everything(nn.Module):
    """All of it in one call; weights and moments are state."""

    def __init__(self) -> None:
        super().__init__()
        for number, weight in enumerate(start_weights(), 1):
            self.register_buffer(f"latent{number}", weight)
            self.register_buffer(f"m{number}", torch.zeros_like(weight))
            self.register_buffer(f"v{number}", torch.zeros_like(weight))
            self.register_buffer(f"scales{number}", scales_of(weight))
        self.fresh = {name: buffer.clone() for name, buffer in self.named_buffers()}

    def reset(self) -> None:
        for name, buffer in self.named_buffers():
            buffer.copy_(self.fresh[name])

    def forward(self, x, labels):
        ops = torch.ops.et_vk
        codes1 = ops.q4gsw_requant(self.latent1, self.scales1, GROUP)
        codes2 = ops.q4gsw_requant(self.latent2, self.scales2, GROUP)
        hidden, logits = Forward()(x, codes1, self.scales1, codes2, self.scales2)
        loss, d_logits = Loss()(logits, labels)
        gradient1, gradient2 = Backward()(d_logits, x, hidden, codes2, self.scales2)
        ops.adamw_step(self.latent1, self.m1, self.v1, gradient1, *OPTIMIZER)
        ops.adamw_step(self.latent2, self.m2, self.v2, gradient2, *OPTIMIZER)
        return loss


def start_weights() -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    first = torch.randn(HIDDEN, INPUTS, generator=random) / INPUTS**0.5
    second = torch.randn(CLASSES, HIDDEN, generator=random) / HIDDEN**0.5
    return first, second


def scales_of(weight: torch.Tensor) -> torch.Tensor:
    """(groups, N): the largest weight of a group is 6 times its scale, which leaves it room to grow."""
    groups = weight.reshape(len(weight), -1, GROUP)
    return (groups.abs().amax(-1) / 6).t().contiguous()


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(2)
    x = torch.randn(BATCH, INPUTS, generator=random)
    return x, torch.randint(0, CLASSES, (BATCH,), generator=random)


def in_methods() -> Model:
    """Forward, loss, backward, and a step for each layer, called one after the other."""
    open_gates()
    requant = torch.ops.et_vk.q4gsw_requant
    x, labels = samples()
    latents = start_weights()
    scales = [scales_of(w) for w in latents]
    codes = [requant(w, s, GROUP) for w, s in zip(latents, scales, strict=True)]
    layers = (codes[0], scales[0], codes[1], scales[1])
    hidden, logits = Forward()(x, *layers)
    _, d_logits = Loss()(logits, labels)
    gradients = Backward()(d_logits, x, hidden, codes[1], scales[1])
    calls: dict[str, tuple[nn.Module, Inputs]] = {
        "forward": (Forward(), (x, *layers)),
        "loss": (Loss(), (logits, labels)),
        "backward": (Backward(), (d_logits, x, hidden, codes[1], scales[1])),
    }
    methods = {name: Method(module.eval(), arguments, [[arguments]]) for name, (module, arguments) in calls.items()}
    for number, (latent, gradient, scale) in enumerate(zip(latents, gradients, scales, strict=True), 1):

        def given(latent=latent, gradient=gradient, scale=scale):
            return latent.clone(), torch.zeros_like(latent), torch.zeros_like(latent), gradient, scale

        methods[f"step{number}"] = Method(Step().eval(), given(), [[given()]], mutated=(0, 1, 2))
    names = ("linear_q4gsw", "fused_ce", "linear_q4gsw_backward", "linear_dW", "q4gsw_requant")
    return Model(methods, expect=(*(f"et_vk.{name}.default" for name in names), "adamw_step.default"))


def in_place(steps: int = 50) -> Model:
    """One method whose state is the model and its optimizer."""
    open_gates()
    module = Everything().eval()
    method = Method(module, samples(), [[samples()] * steps, [samples()] * 2], reset=module.reset)
    return Model({"forward": method}, expect=("adamw_step.default", "et_vk.q4gsw_requant.default"))
