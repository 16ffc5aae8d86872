"""Builders of programs around attention and rotary ops: many calls each, dynamic wherever the exporter allows."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Model, forward

CONTEXT = 16


def fused_attention(lengths: tuple[tuple[int, int], ...] = ((11, 13), (7, 3), (1, 13), (2, 1), (11, 13))) -> Model:
    """et_vk.sdpa over n queries and m keys: no pattern makes it, a model has to call it."""
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers et_vk::

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            mask = torch.randn(1, 1, 17, 17)
            mask[..., 2::3] = float("-inf")
            self.register_buffer("mask", mask)

        def forward(self, q, k, v, mask):
            sdpa = torch.ops.et_vk.sdpa.default
            some_hidden = self.mask[:, :, : q.shape[2], : k.shape[2]]
            one_key_head = k[:, :1], v[:, :1]
            return (
                sdpa(q, k, v, None, None),
                sdpa(q, k, v, None, 0.7),
                sdpa(q, k, v, mask, None),
                sdpa(q, k, v, mask[:, :1], 1.3),
                sdpa(q, k, v, some_hidden, None),
                sdpa(q, *one_key_head, None, None),
                sdpa(q[..., :5].contiguous(), k[..., :5].contiguous(), v, None, None),
            )

    def step(n: int, m: int) -> Inputs:
        return torch.randn(2, 3, n, 8), torch.randn(2, 3, m, 8), torch.randn(2, 3, m, 8), torch.randn(2, 3, n, m)

    n, m = Dim("n", max=11), Dim("m", max=13)
    return forward(
        Attention(),
        step(7, 5),
        [[step(*at) for at in lengths]],
        dynamic_shapes=({2: n}, {2: m}, {2: m}, {2: n, 3: m}),
        expect=("et_vk.sdpa.default",),
    )


def composed_attention(lengths: tuple[int, ...] = (11, 7, 1, 2)) -> Model:
    """F.scaled_dot_product_attention, which exports as bmm, softmax and a search for rows without keys."""

    class Attention(nn.Module):
        def forward(self, q, k, v, mask):
            sdpa = nn.functional.scaled_dot_product_attention
            return (
                sdpa(q, k, v),
                sdpa(q, k, v, scale=0.3),
                sdpa(q, k, v, attn_mask=mask),
                sdpa(q, k[:, :2], v[:, :2], enable_gqa=True),
                sdpa(q, k, v, attn_mask=mask > 0),  # some rows see no key: they are zero
                sdpa(q, k, v, is_causal=True),
            )

    def step(n: int) -> Inputs:
        return torch.randn(2, 4, n, 6), torch.randn(2, 4, n, 6), torch.randn(2, 4, n, 6), torch.randn(1, 1, n, n)

    n = Dim("n", max=11)
    return forward(
        Attention(),
        step(5),
        [[step(at) for at in lengths]],
        dynamic_shapes=({2: n}, {2: n}, {2: n}, {2: n, 3: n}),
        expect=("aten._softmax.default",),
    )


class Cached(nn.Module):
    """One attention layer with its caches."""

    def __init__(self, batch: int, kv_heads: int, width: int, scale: float | None = None) -> None:
        super().__init__()
        self.scale = scale
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, CONTEXT, kv_heads, width))

    def forward(self, q, k, v, start):
        torch.ops.llama.update_cache(k, self.keys, start)
        torch.ops.llama.update_cache(v, self.values, start)
        return torch.ops.llama.custom_sdpa(q, self.keys, self.values, start, None, 0.0, True, self.scale)


def clear(module: nn.Module) -> None:
    for name, buffer in module.named_buffers():
        if name.endswith(("keys", "values")):
            buffer.zero_()


def positions(runs: tuple[tuple[int, ...], ...]) -> list[list[tuple[int, int]]]:
    """(tokens, position) of each step, from an empty cache."""
    return [[(n, sum(run[:i])) for i, n in enumerate(run)] for run in runs]


def cached_attention(
    batch: int = 2, widths: tuple[int, ...] = (6, 8), runs: tuple[tuple[int, ...], ...] = ((5, 1, 1, 1, 7, 1), (11, 1))
) -> Model:
    """Two layers of different geometry share one live position; the first run ends with a full cache."""
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers llama::

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow = Cached(batch, 2, widths[0])
            self.wide = Cached(batch, 1, widths[1], scale=0.2)

        def forward(self, q, k, v, p, r, position):
            start = position[0].item()
            return self.narrow(q, k, v, start), self.wide(p, r, r + 1.0, start)

    def step(n: int, at: int) -> Inputs:
        narrow = [torch.randn(batch, n, h, widths[0]) for h in (4, 2, 2)]
        wide = [torch.randn(batch, n, h, widths[1]) for h in (3, 1)]
        return (*narrow, *wide, torch.tensor([at]))

    module, n = Layers(), Dim("n", max=11)
    return forward(
        module,
        step(3, 0),
        [[step(*at) for at in run] for run in positions(runs)],
        dynamic_shapes=(*[{1: n}] * 5, None),
        reset=lambda: clear(module),
        expect=("sdpa_with_kv_cache.default",),
    )


def masked_cache(runs: tuple[tuple[int, ...], ...] = ((5, 1, 1), (3, 3, 3))) -> Model:
    """A sliding window over the cache: the mask, a table indexed by position, takes the place of `is_causal`."""
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers llama::

    class Windowed(Cached):
        def __init__(self) -> None:
            super().__init__(1, 2, 6)
            past = torch.arange(CONTEXT)[:, None] - torch.arange(CONTEXT)[None, :]
            self.register_buffer("window", torch.where((past >= 0) & (past < 4), 0.0, float("-inf")))

        def forward(self, q, k, v, position):
            start = position[0].item()
            torch._check(start >= 0)
            torch._check(start + q.shape[1] <= CONTEXT)
            torch.ops.llama.update_cache(k, self.keys, start)
            torch.ops.llama.update_cache(v, self.values, start)
            mask = self.window.narrow(0, start, q.shape[1])
            # With the default scale the exporter drops the last arguments, and then its own pattern fails.
            return torch.ops.llama.custom_sdpa(q, self.keys, self.values, start, mask, 0.0, False, 0.5)

    def step(n: int, at: int) -> Inputs:
        return (*(torch.randn(1, n, h, 6) for h in (4, 2, 2)), torch.tensor([at]))

    module = Windowed()
    return forward(
        module,
        step(3, 0),
        [[step(*at) for at in run] for run in positions(runs)],
        dynamic_shapes=(*[{1: Dim("n", max=11)}] * 3, None),
        reset=lambda: clear(module),
        expect=("sdpa_with_kv_cache.default",),
    )


def cache_writes(runs: tuple[tuple[int, ...], ...] = ((5, 1, 1, 9), (11, 2))) -> Model:
    """update_cache without attention: into a buffer of the program, and into an input."""
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers llama::

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, CONTEXT, 2, 5))

        def forward(self, x, given, position):
            start = position[0].item()
            torch.ops.llama.update_cache(x, self.keys, start)
            torch.ops.llama.update_cache(x, given, 2)
            return self.keys * 1.0

    def step(n: int, at: int) -> Inputs:
        return torch.randn(2, n, 2, 5), torch.randn(2, CONTEXT, 2, 5), torch.tensor([at])

    module = Writes()
    return forward(
        module,
        step(3, 0),
        [[step(*at) for at in run] for run in positions(runs)],
        dynamic_shapes=({1: Dim("n", max=11)}, None, None),
        reset=lambda: clear(module),
        mutated=(1,),
        expect=("update_cache.default",),
    )


def rotary_forms(steps: tuple[tuple[int, int], ...] = ((11, 0), (7, 3), (1, 15), (2, 9), (11, 5))) -> Model:
    """Halves of whole heads and of a part of them, from a live row of their tables; neighbours with a packed table."""
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers et_vk::
    from executorch.examples.models.llama.rope import hf_apply_rotary_emb, hf_precompute_freqs_cis

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, factor in (("whole", 1.0), ("part", 0.75)):
                cos, sin = hf_precompute_freqs_cis(16, CONTEXT, 10000.0, partial_rotary_factor=factor)
                self.register_buffer(f"{name}_cos", cos)
                self.register_buffer(f"{name}_sin", sin)

        def turned(self, q, k, start, name):
            rows = [getattr(self, f"{name}_{t}").narrow(0, start, q.shape[1]) for t in ("cos", "sin")]
            return hf_apply_rotary_emb(q, k, *rows)

        def forward(self, q, k, position, x, pairs):
            start = position[0].item()
            torch._check(start >= 0)
            torch._check(start + q.shape[1] <= CONTEXT)
            packed = torch.ops.et_vk.apply_rotary_emb_interleaved.default
            return *self.turned(q, k, start, "whole"), *self.turned(q, k, start, "part"), packed(x, pairs)

    def step(n: int, at: int) -> Inputs:
        x, pairs = torch.randn(2, n, 6), torch.randn(1, n, 3, 2)
        return torch.randn(1, n, 4, 16), torch.randn(1, n, 2, 16), torch.tensor([at]), x, pairs

    n = Dim("n", max=11)
    return forward(
        Rotary(),
        step(3, 2),
        [[step(*at) for at in steps]],
        dynamic_shapes=({1: n}, {1: n}, None, {1: n}, {1: n}),
        expect=("et_vk.apply_rotary_emb_hf.default", "et_vk.apply_rotary_emb_interleaved.default"),
    )
