"""Layers with weights, pooling and attention."""

from __future__ import annotations

import torch

from ..maker import Maker, Value, family


def _last(v: Value) -> int | None:
    return v.static(-1) if v.rank else None


def _layer(m: Maker, text: str) -> str:
    """Return a layer in the dtype of the program."""
    return m.layer(f"{text}.half()" if m.float_dtype == "float16" else text)


def _main(m: Maker, rank: int = 1, last: bool = True) -> Value | None:
    """Return a value of the program's own float type, with a static last dim where that is asked for."""
    return m.pick_float(rank, lambda v: v.dtype == getattr(torch, m.float_dtype) and (not last or _last(v) is not None))


@family(8)
def linear(m: Maker) -> None:
    x = _main(m)
    if x is None:
        return
    width, out = _last(x) or 1, m.choose((1, 3, 4, 5, 8, _last(x)))
    text = f"nn.Linear({width}, {out}, bias={m.chance(0.6)})"
    m.add(f"{_layer(m, text)}({{0}})", x)


@family(5)
def quantized_linear(m: Maker) -> None:
    """Where a value is wide enough for a group of weights."""
    x = m.pick_float(1, lambda v: v.dtype == torch.float32 and (_last(v) or 1) % 32 == 0)
    if x is None:
        return
    width = _last(x) or 32
    bits, group = m.choose(((4, 32), (4, 32), (4, width), (8, 0), (8, 32)))
    text = f"nn.Linear({width}, {m.choose((4, 8, 32))}, bias={m.chance(0.5)})"
    m.add(f"{m.layer(f'quantized({text}, {bits}, {group})')}({{0}})", x)


@family(1)
def feed_forward(m: Maker) -> None:
    x = _main(m)
    if x is None:
        return
    width = _last(x) or 1
    up, down = _layer(m, f"nn.Linear({width}, {2 * width})"), _layer(m, f"nn.Linear({width}, {width})")
    code = f"{down}(F.silu({up}({{0}}).chunk(2, -1)[0]) * {up}({{0}}).chunk(2, -1)[1])"
    m.add(m.choose((code, f"F.glu({up}({{0}}), -1)")), x)


@family(5)
def norm(m: Maker) -> None:
    x = _main(m)
    if x is None:
        return
    width = _last(x) or 1
    ways = [
        f"stirred(nn.LayerNorm({width}))",
        f"stirred(nn.RMSNorm({width}, eps=1e-5))",
        f"nn.LayerNorm({width}, elementwise_affine=False)",
    ]
    channels = x.static(1) if 2 <= x.rank <= 4 else None
    if channels:
        ways.append(f"stirred(nn.BatchNorm{2 if x.rank == 4 else 1}d({channels}))")
        if x.rank > 2 and channels % 2 == 0:
            ways += [f"stirred(nn.GroupNorm(2, {channels}))"] * 2
    m.add(f"{_layer(m, m.choose(ways))}({{0}})", x)


@family(6)
def convolution(m: Maker) -> None:
    x = _main(m, 3, last=False)
    if x is None or x.rank > 4 or (channels := x.static(1)) is None:
        return
    flat = x.rank - 2
    kernel, stride, padding, dilation = (
        m.choose((1, 2, 3, 3)),
        m.choose((1, 1, 2)),
        m.choose((0, 1, 1)),
        m.choose((1, 1, 2)),
    )
    groups = m.choose([1, 1, channels] + [2] * (channels % 2 == 0))
    out = groups * m.choose((1, 2, 3))
    common = f"{channels}, {out}, {kernel}, stride={stride}, groups={groups}, bias={m.chance(0.7)}"
    if m.chance(0.15):
        text = f"nn.ConvTranspose{flat}d({common}, padding={min(padding, kernel - 1)})"
    else:
        text = f"nn.Conv{flat}d({common}, padding={padding}, dilation={dilation})"
    m.add(f"{_layer(m, text)}({{0}})", x)


@family(3)
def pool(m: Maker) -> None:
    x = _main(m, 3, last=False)
    if x is None or x.rank > 4:
        return
    flat = x.rank - 2
    size, stride, padding = m.choose((2, 3)), m.choose((1, 2)), m.choose((0, 0, 1))
    ways = [
        f"F.max_pool{flat}d({{0}}, {size}, {stride}, {padding})", f"F.adaptive_avg_pool{flat}d({{0}}, 1)",
        f"F.avg_pool{flat}d({{0}}, {size}, {stride}, {padding}, ceil_mode={m.chance(0.2)})",
    ]  # fmt: skip
    if flat == 2:
        ways += [
            "F.interpolate({0}, scale_factor=2, mode='nearest')",
            "F.interpolate({0}, scale_factor=2, mode='bilinear', align_corners=False)",
        ]
        ways += ["F.adaptive_avg_pool2d({0}, (2, 3))", "F.pixel_unshuffle({0}, 2)", "F.pixel_shuffle({0}, 2)"]
    m.add(m.choose(ways), x)


@family(3)
def embedding(m: Maker) -> None:
    index = m.pick(lambda v: v.is_int and v.dtype in (torch.int32, torch.int64))
    rows, width = m.rng.randint(3, 11), m.choose((3, 4, 8))
    table = _layer(m, f"nn.Embedding({rows}, {width})")
    m.add(f"{table}({{0}} % {rows})" if m.chance(0.7) else f"{table}({{0}}.clamp(0, {rows - 1}))", index)


@family(4)
def attention(m: Maker) -> None:
    x = _main(m, 2)
    if x is None or x.rank > 3:
        return
    width = _last(x) or 1
    causal = m.chance(0.5)
    if x.rank == 3 and width % 2 == 0 and m.chance(0.5):
        q, k, v = (_layer(m, f"nn.Linear({width}, {width})") for _ in range(3))
        heads = ".unflatten(-1, (2, -1)).transpose(1, 2)"
        inner = ", ".join(f"{part}({{0}}){heads}" for part in (q, k, v))
        m.add(f"F.scaled_dot_product_attention({inner}, is_causal={causal}).transpose(1, 2).flatten(2)", x)
    elif m.chance(0.5):
        other = m.pick_like(x)
        m.add(f"F.scaled_dot_product_attention({{0}}, {{1}}, {{1}}, is_causal={causal})", x, other)
    else:
        m.add("torch.softmax({0} @ {1}.transpose(-1, -2) / 3, -1) @ {1}", x, m.pick_like(x))


@family(3)
def product(m: Maker) -> None:
    x = m.pick_float(2)
    if x is None:
        return
    y = m.pick(lambda v: v.dtype == x.dtype and v.rank >= 2) or x
    ways = ["{0} @ {1}", "{0} @ {1}.transpose(-1, -2)", "{0}.transpose(-1, -2) @ {1}"]
    if x.rank == 3 and y.rank == 3:
        ways += ["torch.bmm({0}, {1}.transpose(1, 2))", "torch.einsum('bij,bkj->bik', {0}, {1})"]
    if x.rank == 2 and y.rank == 2:
        ways += [
            "torch.mm({0}, {1}.t())",
            "torch.einsum('ij,kj->ik', {0}, {1})",
            "torch.addmm({0}[:, :1], {0}, {1}.t(), beta=0.5)",
        ]
    m.add(m.choose(ways), x, y)


@family(1)
def cell(m: Maker) -> None:
    """A step of a recurrent layer, with the state it comes from."""
    x = m.pick_float(2, lambda v: v.rank == 2 and _last(v) is not None and v.dtype == torch.float32)
    if x is None:
        return
    width = _last(x) or 1
    if m.chance(0.6):
        m.add(f"{m.layer(f'nn.GRUCell({width}, {width})')}({{0}}, {{1}})", x, m.pick_like(x))
    else:
        m.add(f"{m.layer(f'nn.LSTMCell({width}, {width})')}({{0}}, ({{1}}, {{0}}))", x, m.pick_like(x), results=2)


@family(0.5)
def recurrent(m: Maker) -> None:
    x = m.pick_float(
        3, lambda v: v.rank == 3 and v.static(1) is not None and _last(v) is not None and v.dtype == torch.float32
    )
    if x is not None:
        m.add(f"{m.layer(f'nn.GRU({_last(x)}, 3, batch_first=True)')}({{0}})[0]", x)


@family(2)
def branch(m: Maker) -> None:
    """`torch.cond` on data or on a flag."""
    from ..program import Block, Statement
    from .elementwise import ACTIVATIONS, SCALAR, UNARY

    x = m.pick_float(1, lambda v: None not in v.dims)
    flag = m.pick(lambda v: v.dtype == torch.bool and v.rank == 0)
    if flag is None or m.chance(0.5):
        flags = m.add(m.choose(("{0}.sum() > 0", "{0}.mean() < 0.1", "{0}.reshape(-1)[0] > 0")), m.pick_float(1))
        flag = flags[0] if flags else None
    if x is None or flag is None:
        return
    blocks = []
    for number in range(2):
        steps, name = [], "a"
        for step in range(m.rng.randint(1, 3)):
            made_name = f"c{number}{step}"
            steps.append(
                Statement([made_name], m.choose((*ACTIVATIONS, *UNARY, *SCALAR[:7], "{0} + b", "{0} * b")), [name])
            )
            name = made_name
        blocks.append(Block(["a", "b"], steps, name))
    m.add("torch.cond({0}, then, other, ({1}, {2}))", flag, x, m.pick_like(x), branches=blocks)
