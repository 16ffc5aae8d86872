"""Types other than f32: at the borders, inside delegates and outside them."""

import torch
from torch import nn, randint, randn
from torch.export import Dim

from ..building import Case, case, module, program

LARGEST = torch.iinfo(torch.int64).max


@program(tolerance=1e-3)
def casts() -> Case:
    def forward(x):
        i = x.to(torch.int32)
        wide = i.to(torch.int64) * 3 + 1
        small = (x * 10).to(torch.int8), (x.abs() * 20).to(torch.uint8)
        floats = x.to(torch.float16), x.half().float() * 2, wide.to(torch.float32) / 7, x.double()
        return i, wide, x.bool(), *small, *floats

    return case(forward, [(randn(3, k) * 3,) for k in (13, 11, 1, 2)], {1: Dim("n", max=13)})


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(19, 33), nn.GELU(), nn.LayerNorm(33), nn.Linear(33, 7))


@program(tolerance=4e-3)
def fp16() -> Case:
    """f32 outside, f16 in the delegate."""
    model = nn.Sequential(*layers(), nn.Softmax(-1))
    steps = [(randn(k, 19),) for k in (13, 11, 1, 2)]
    return case(model, steps, {0: Dim("n", max=13)}, options={"force_fp16": True})


@program(tolerance=4e-3)
def half_model() -> Case:
    """Weights, inputs and outputs in f16."""
    return case(layers().half(), [(randn(k, 19).half(),) for k in (13, 11, 1, 2)], {0: Dim("n", max=13)})


@program(tolerance=2e-2)
def bf16in() -> Case:
    """A linear layer in bf16 between f32."""
    model = module(lambda self, x: self.l(x.bfloat16()).float(), l=nn.Linear(8, 4).bfloat16())
    return case(model, [(randn(5, 8),) for _ in range(4)])


@program
def u8img() -> Case:
    """An image in bytes."""

    def forward(x):
        return (x.float() / 255 - 0.5) / 0.2, x.to(torch.int32) - 128, x > 127, x.float().mean((1, 2))

    steps = [(randint(0, 256, (3, k, 7), dtype=torch.uint8),) for k in (11, 9, 1, 3)]
    return case(forward, steps, {1: Dim("h", max=11)})


@program
def booleans() -> Case:
    def forward(x, y):
        logic = x & y, x | ~y, x ^ y, torch.logical_and(x, y)
        reduced = x.sum(1), x.any(1), (x & y).all(0), x.to(torch.int64).cumsum(1)
        return *logic, *reduced, torch.where(x, 1.0, 2.0), x.float() + y

    h = Dim("h", max=11)
    return case(forward, [(torch.rand(k, 7) > 0.5, torch.rand(k, 7) > 0.3) for k in (11, 9, 1, 3)], {0: h}, {0: h})


@program
def i8in() -> Case:
    steps = [(randint(-128, 128, (5, k), dtype=torch.int8),) for k in (11, 9, 1, 3)]
    return case(lambda x: (x.float() * 0.1, x.to(torch.int32) * 2, x > 0), steps, {1: Dim("h", max=11)})


@program
def i16in() -> Case:
    steps = [(randint(-3000, 3000, (5, 9), dtype=torch.int16),) for _ in range(4)]
    return case(lambda x: (x.float() * 0.1, x.to(torch.int32) * 2), steps)


@program(tolerance=1e-6)
def f64in() -> Case:
    return case(lambda x: (x * 2, x.float() + 1, x.sum()), [(randn(5, 9, dtype=torch.float64),) for _ in range(4)])


@program(tolerance=1e-5)
def k_f64math() -> Case:
    def forward(x):
        return torch.cat([x, x.exp()], 0), x @ x.transpose(1, 2), x.mean(1), torch.softmax(x, -1)

    return case(forward, [(randn(3, 5, 4, dtype=torch.float64),) for _ in range(4)])


@program
def k_cat_u8() -> Case:
    steps = [(randint(0, 255, (3, 5, 4), dtype=torch.uint8),) for _ in range(4)]
    return case(lambda x: torch.cat([x, x + 1], 1), steps)


@program
def k_cat_i16() -> Case:
    steps = [(randint(-99, 99, (3, 5, 4), dtype=torch.int16),) for _ in range(4)]
    return case(lambda x: torch.cat([x, x * 2], 1), steps)


@program
def k_stack_i16() -> Case:
    steps = [(randint(-99, 99, (3, 5, 4), dtype=torch.int16),) for _ in range(4)]
    return case(lambda x: torch.stack([x, x * 2], 1), steps)


@program
def k_idx_u8() -> Case:
    steps = [(randint(0, 255, (3, 5, 4), dtype=torch.uint8), randint(0, 5, (3,))) for _ in range(4)]
    return case(lambda x, i: x[:, i], steps)


# ---------------------------------------------------------------- 64-bit integers beyond 32 bits


@program
def i64_big() -> Case:
    """Products and sums that leave 32 bits."""

    def forward(x):
        return x * 1000003, torch.cumsum(x, 0), x // 7, x % 13, x.float() * 2, x.sum()

    values = ([5, 100000, -70000, 2**30], [5, 10, -7, 20], [1, 2, 3, 4], [-1, 0, 2**20, 9])
    return case(forward, [(torch.tensor(v),) for v in values])


@program
def i64_const() -> Case:
    """Constants beyond 32 bits."""

    def forward(self, x):
        return torch.where(x > 0, self.c, x), (self.c > 2**33).to(torch.int64) + x

    values = ([1, 1, 1, 1], [0, 1, -1, 5], [0, 0, 0, 0], [3, -2, 1, 7])
    return case(module(forward, c=torch.tensor([2**40, -(2**35), 7, 2**31])), [(torch.tensor(v),) for v in values])


@program
def i64_cmp() -> Case:
    """Comparisons with the largest integer, as masks are written."""

    def forward(x):
        return x.masked_fill(x > 3, LARGEST), torch.where(x < LARGEST, x, 0), x.clamp(max=2**40)

    values = ([1, 5, 3, 4], [0, -1, 2, 9], [3, 3, 3, 3], [4, 4, 4, 4])
    return case(forward, [(torch.tensor(v),) for v in values])


# ---------------------------------------------------------------- layouts


def channels_last(**more) -> Case:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).to(memory_format=torch.channels_last)
    return case(model, [(randn(1, 3, 9, 7).to(memory_format=torch.channels_last),) for _ in range(4)], **more)


@program
def chlast() -> Case:
    """Channels-last images, with their order in the file."""
    return channels_last()


@program
def chlast_skip() -> Case:
    """Channels-last images, exported without dim orders."""
    return channels_last(skip_dim_order=True)
