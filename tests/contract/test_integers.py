"""64-bit integers through the real exporter: what eager has, or a typed error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops as exir_ops

import webpte
from tests.support.export.exporting import export
from tests.support.export.lowering import forward
from tests.support.harness.errors import raises
from webpte.export import lower

EDGE = exir_ops.edge.aten
VALUES = [
    [1, 2, 3, -4],
    [5, 100000, -70000, 2**30],
    [46341, -46341, 1, 7],
    [2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1],
    [2**31, -(2**31) - 1, 2**32, -(2**32)],
    [2**53 + 1, 2**63 - 1, -(2**63), 3],
]
BIG = 2**63 - 1


class Of(torch.nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


MODULES = {
    "products": lambda: Of(lambda m, x: x * 1000003),
    "running sums": lambda: Of(lambda m, x: (torch.cumsum(x, 0), x.sum())),
    "quotients": lambda: Of(lambda m, x: (x // 7, x % 13, x // -1)),
    "sums": lambda: Of(lambda m, x: (x + 3, 5 - x, x + x.flip(0), torch.sub(x, x.flip(0), alpha=3))),
    "squares": lambda: Of(lambda m, x: (x**2, x.abs(), -x)),
    "as floats": lambda: Of(lambda m, x: (x.float() * 2, x.double() / 3)),
    "filled with the largest": lambda: Of(lambda m, x: x.masked_fill(x > 3, BIG)),
    "compared with the largest": lambda: Of(lambda m, x: (torch.where(x < BIG, x, 0), x >= 2**31, x <= -(2**40))),
    "clamped": lambda: Of(lambda m, x: (x.clamp(max=2**40), x.clamp(min=-(2**31) - 1), x.clamp(-5, 5))),
    "a constant outside": lambda: Of(
        lambda m, x: torch.where(x > 0, m.c, x), c=torch.tensor([2**40, -(2**35), 7, 2**31])
    ),
    "a constant cut short": lambda: Of(
        lambda m, x: (torch.where(x > 0, m.c, x), (m.c > 2**33).to(torch.int64) + x),
        c=torch.tensor([2**40, -(2**35), 7, 2**31]),
    ),
    "sorted": lambda: Of(lambda m, x: tuple(torch.topk(x, 3))),
}
ALWAYS_RIGHT = {"running sums", "sorted"}  # no delegate computes with the integers
REFUSED_AT_LOAD = {"a constant cut short"}


def integers(name):
    """Return one module, run on every row of VALUES."""
    steps = [(torch.tensor(row),) for row in VALUES]
    return forward(MODULES[name](), steps[0], [steps])


@pytest.mark.parametrize("name", MODULES)
def test_integers_equal_eager_or_typed_error(name):
    exported = export(integers, name=name)
    with webpte.load(exported.path) as program:
        if name in REFUSED_AT_LOAD:
            with raises(webpte.UnsupportedError, -34359738368, "operator_blocklist"):
                program.method()
            return
        method, right = program.method(), 0
        for step in exported.steps:
            try:
                got = method.run(step.inputs)
            except (webpte.InputError, webpte.RangeError) as error:
                assert name not in ALWAYS_RIGHT, error
                continue
            right += 1
            for mine, theirs in zip(got, step.outputs, strict=True):
                assert mine.dtype == theirs.dtype
                if mine.dtype.kind == "f":
                    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
                else:
                    assert np.array_equal(mine, theirs), (step.inputs, mine, theirs)
        assert right >= (len(VALUES) if name in ALWAYS_RIGHT else 1)


def test_integers_outside_delegates_are_computed_in_64_bits(tmp_path):
    module = Of(lambda m, x: x * 1000003 - 1)
    kept = [EDGE.mul.Tensor, EDGE.sub.Tensor]
    lower(module, (torch.tensor(VALUES[0]),), path=tmp_path / "m.pte", operator_blocklist=kept)
    with webpte.load(tmp_path / "m.pte") as program:
        for row in VALUES:
            assert np.array_equal(program.method()(np.array(row)), module(torch.tensor(row)).numpy())


@pytest.mark.parametrize(
    ("module", "value"),
    [(Of(lambda m, x: x + 2**40), 2**40), (Of(lambda m, x: x + m.c, c=torch.tensor([2**31])), 2**31)],
)
def test_integer_constant_too_wide_is_not_exported(module, value, tmp_path):
    with raises(webpte.UnsupportedError, value, "operator_blocklist"):
        lower(module, (torch.tensor([1, 2]),), path=tmp_path / "m.pte")
    lower(module, (torch.tensor([1, 2]),), path=tmp_path / "m.pte", operator_blocklist=[EDGE.add.Tensor])
    with webpte.load(tmp_path / "m.pte") as program:
        assert np.array_equal(program.method()(np.array([1, 2])), module(torch.tensor([1, 2])).numpy())


# -- programs without delegates: beyond 32 bits the CPU computes -------------------------------------------------------

STAMPS = [1_763_492_000_000, 1_763_492_001_234, 5, 6]


def write_portable(module, example, path):
    """Export a program without delegates."""
    options = EdgeCompileConfig(_check_ir_validity=False)  # shifts are not in the core opset
    edge = to_edge_transform_and_lower(torch.export.export(module.eval(), example), compile_config=options)
    path.write_bytes(edge.to_executorch().buffer)
    return path


class Uses(torch.nn.Module):
    """Ops that run on the device in 32 bits, if nothing says that they need more."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 3)

    def forward(self, x):
        hashed = ((x * 6364136223846793005 + 1442695040888963407) ^ (x >> 17)) % 1000003
        rows = self.table((x % 11).abs()) * 2 + x.float().unsqueeze(-1)
        moved = torch.cat([x, x.flip(0)])[1:6].view(5, 1)
        seconds = (x - x.min()) // 1000
        product = torch.mm(x.view(2, 2), x.view(2, 2))
        compared = torch.where(x > 3, x, 1 - x)
        return hashed, rows, moved, seconds, product.float(), compared, x.max(), x == x[0], (x * 1000003).float()


@pytest.fixture(scope="module")
def portable(tmp_path_factory):
    module = Uses()
    path = write_portable(module, (torch.tensor(VALUES[0]),), tmp_path_factory.mktemp("portable") / "m.pte")
    with webpte.load(path) as program:
        yield module, program.method()


@pytest.mark.parametrize("row", [*VALUES, STAMPS, VALUES[0]], ids=str)
def test_program_without_delegates_with_any_integers_matches_eager(portable, row):
    module, method = portable
    with torch.no_grad():
        expected = [t.numpy() for t in module(torch.tensor(row))]
    for got, want in zip(method.run([np.array(row)]), expected, strict=True):
        assert got.dtype == want.dtype
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-6)
        else:
            np.testing.assert_array_equal(got, want)


def test_strict_call_with_integers_beyond_32_bits_is_refused(tmp_path):
    write_portable(Of(lambda m, x: x > 3), (torch.tensor([1, 2]),), tmp_path / "m.pte")
    with webpte.load(tmp_path / "m.pte") as program:
        method = program.method()
        with raises(webpte.InputError, "input 0", 2**31 - 1, 2**40, "strict", code="int32_range"):
            method.run([np.array([1, 2**40])], strict=True)
        assert method.run([np.array([1, 7])], strict=True)[0].tolist() == [False, True]
        assert method(np.array([1, 2**40])).tolist() == [False, True]


class Stamped(torch.nn.Module):
    """State on the device, and, as float64, on the host."""

    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("last", torch.zeros(2, dtype=dtype))
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x):
        passed = x.to(self.last.dtype) - self.last
        self.last.copy_(x.to(self.last.dtype))
        self.calls.add_(1.0)
        return passed, x.float() * self.calls


def test_state_of_calls_with_and_without_wide_integers_is_one(tmp_path):
    rows = [[5, 6], [2**40, 7], [2**40 + 5000, 2**41], [3, 4], [9, 2**50], [1, 1]]
    eager = Stamped(torch.float64)
    write_portable(Stamped(torch.float64), (torch.tensor([1, 2]),), tmp_path / "m.pte")
    expected = [[t.clone().numpy() for t in eager(torch.tensor(row))] for row in rows]
    with webpte.load(tmp_path / "m.pte") as program:
        method = program.method()
        assert method.plan.flow.state != frozenset(method.plan.host_state)  # some of it is on the device
        runs = [[method.run([np.array(row)]) for row in rows]]
        method.reset()
        runs.append(method.run_steps([[np.array(row)] for row in rows], {}, [0, 1]))
        method.reset()
        first = [method.run([np.array(row)]) for row in rows[:3]]
        fork = method.fork()
        runs.append(first + [fork.run([np.array(row)]) for row in rows[3:]])
        runs.append(first + [method.run([np.array(row)]) for row in rows[3:]])
    for results in runs:
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_array_equal(got[0], want[0])
            np.testing.assert_allclose(got[1], want[1], rtol=1e-6)


def test_integer_input_too_wide_for_state_refused_state_kept(tmp_path):
    write_portable(Stamped(torch.int64), (torch.tensor([1, 2]),), tmp_path / "m.pte")
    with webpte.load(tmp_path / "m.pte") as program:
        method = program.method()
        method(np.array([5, 6]))
        with raises(webpte.RangeError, "state", 2**31 - 1, 2**40, "float64"):
            method(np.array([2**40, 7]))
        passed, scaled = method.run([np.array([7, 7])])
        assert passed.tolist() == [2, 1] and scaled.tolist() == [14, 14]


def test_wide_integers_for_a_delegate_are_refused_with_a_remedy_that_works(tmp_path):
    module, row = Of(lambda m, x: (x + 3, x * 2)), [1, 2**40]
    lower(module, (torch.tensor([1, 2]),), path=tmp_path / "m.pte")
    with webpte.load(tmp_path / "m.pte") as program:
        with raises(webpte.InputError, "input 0", 2**31 - 1, 2**40, "aten.add.Tensor", code="int32_range") as error:
            program.method()(np.array(row))
        assert [t.tolist() for t in program.method().run([np.array([1, 2])])] == [[4, 5], [2, 4]]
    hint = error.value.hint or ""
    named = [getattr(EDGE, op).Tensor for op in ("add", "mul") if f"exir_ops.edge.aten.{op}.Tensor" in hint]
    assert len(named) == 2
    lower(module, (torch.tensor([1, 2]),), path=tmp_path / "again.pte", operator_blocklist=named)
    with webpte.load(tmp_path / "again.pte") as program:
        got = program.method().run([np.array(row)])
    assert [t.tolist() for t in got] == [t.tolist() for t in module(torch.tensor(row))]
