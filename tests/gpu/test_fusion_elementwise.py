"""Random graphs of elementwise calls compute the same joined as one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import webpte
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType

IN_ORDER = settings(
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SHAPES = ((5, 8), (8,), (5, 1), (), (1, 8))
FUNCTIONS = ("neg", "abs", "relu", "tanh", "sigmoid", "sin", "round", "silu")
PAIRS = ("mul.Tensor", "minimum.default", "maximum.default", "add.Tensor", "sub.Tensor")
F32, I32, BOOL = DType.FLOAT32, DType.INT32, DType.BOOL


class Drawn:
    """A program of which every call was drawn."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.values: list[c.VkValue] = []
        self.calls: list[tuple[str, list[int]]] = []
        self.inputs = [self.tensor(F32, dims) for dims in SHAPES]
        for _ in range(draw(st.integers(2, 30))):
            self.step()
        created = [args[-1] for _, args in self.calls]
        self.outputs = sorted({created[-1], *draw(st.lists(st.sampled_from(created), max_size=3))})

    def tensor(self, dtype: DType, dims: tuple[int, ...]) -> int:
        self.values.append(c.VkTensor(dtype, dims))
        return len(self.values) - 1

    def number(self, value: float) -> int:
        self.values.append(c.VkInt(value) if isinstance(value, int) else c.VkDouble(value))
        return len(self.values) - 1

    def pick(self, *dtypes: DType) -> int:
        """Return a tensor, more often a recent one."""
        known = [i for i, v in enumerate(self.values) if isinstance(v, c.VkTensor) and v.dtype in dtypes]
        return self.draw(st.sampled_from(known + known[-3:] * 2))

    def call(self, name: str, dtype: DType, *args: int) -> None:
        tensors = [v.dims for v in (self.values[a] for a in args) if isinstance(v, c.VkTensor)]
        self.calls.append((f"aten.{name}", [*args, self.tensor(dtype, np.broadcast_shapes(*tensors))]))

    def step(self) -> None:
        match self.draw(st.sampled_from(("function", "pair", "number", "compare", "choose", "cast", "clamp"))):
            case "function":
                self.call(f"{self.draw(st.sampled_from(FUNCTIONS))}.default", F32, self.pick(F32))
            case "pair":
                name = self.draw(st.sampled_from(PAIRS))
                scale = [self.number(self.draw(st.sampled_from((1, 2, 0.5))))] if name[:3] in ("add", "sub") else []
                self.call(name, F32, self.pick(F32), self.pick(F32, I32, BOOL), *scale)
            case "number":
                self.call("mul.Scalar", F32, self.pick(F32), self.number(self.draw(st.sampled_from((2, 0.25)))))
            case "compare":
                self.call(self.draw(st.sampled_from(("lt.Tensor", "ne.Tensor"))), BOOL, self.pick(F32), self.pick(F32))
            case "choose":
                if any(isinstance(v, c.VkTensor) and v.dtype is BOOL for v in self.values):
                    self.call("where.self", F32, self.pick(BOOL), self.pick(F32), self.pick(F32))
            case "cast":
                self.call("_to_copy.default", I32, self.pick(F32), *[self.null() for _ in range(6)])
            case "clamp":
                self.call("clamp.default", F32, self.pick(F32), self.number(-1.5), self.null())

    def null(self) -> int:
        self.values.append(c.VkNull())
        return len(self.values) - 1


@st.composite
def programs(draw) -> Drawn:
    drawn = Drawn(draw)
    while not drawn.calls:
        drawn.step()
    return drawn


@IN_ORDER
@given(drawn=programs(), seed=st.integers(0, 99))
def test_joined_and_single_calls_agree(tmp_path, device, drawn, seed):
    path = tmp_path / "drawn.pte"
    simple_pte(path, drawn.values, drawn.calls, drawn.inputs, drawn.outputs, [])
    random = np.random.default_rng(seed)
    arrays = [np.asarray(random.uniform(-2, 2, dims), np.float32) for dims in SHAPES]
    with webpte.load(path, passes=()) as single, webpte.load(path, passes=["elementwise"]) as joined:
        want, got = single.method().run(arrays), joined.method().run(arrays)
    for one, other in zip(want, got, strict=True):
        np.testing.assert_allclose(other, one, 1e-6, 1e-6, equal_nan=False, strict=True)


def test_fusion_long_chain_runs_in_few_dispatches(tmp_path, device):
    values: list[c.VkValue] = [c.VkTensor(F32, (8, 8)), c.VkDouble(1.01)]
    calls = []
    for step in range(200):
        values.append(c.VkTensor(F32, (8, 8)))
        last = len(values) - 1
        source = 0 if step == 0 else last - 1
        calls.append(("aten.mul.Scalar", [source, 1, last]) if step % 2 else ("aten.sin.default", [source, last]))
    simple_pte(tmp_path / "chain.pte", values, calls, [0], [last], [])
    x = np.random.default_rng(3).uniform(-1, 1, (8, 8)).astype(np.float32)
    want = x.astype(np.float64)
    for step in range(200):
        want = want * 1.01 if step % 2 else np.sin(want)
    with webpte.load(tmp_path / "chain.pte") as program:
        method = program.method()
        before = method.counters.snapshot()
        got = method(x)
        assert method.counters.since(before).dispatches <= 8
    np.testing.assert_allclose(got, want, 1e-4, 1e-4)
