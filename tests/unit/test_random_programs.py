"""Random programs as data: what is kept, printed and made small, and what counts as wrong."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.studies.random_modules.minimize import candidates, minimize, size
from tests.studies.random_modules.program import (
    Block,
    Buffer,
    Input,
    Kind,
    Lowering,
    Method,
    Program,
    Statement,
    source,
)
from tests.studies.random_modules.running import Outcome, difference


def many_statements() -> Program:
    """Two methods, a dynamic size, a branch, state, and a tanh in the middle of it all."""
    square = Kind("float32", ["s0", 4])
    branch = [
        Block(["a", "b"], [Statement(["c0"], "F.relu({0})", ["a"]), Statement(["c1"], "{0} + b", ["c0"])], "c1"),
        Block(["a", "b"], [Statement(["c2"], "-{0}", ["a"])], "c2"),
    ]
    statements = [
        Statement(["v1"], "self.l1({0})", ["x0"]),
        Statement(["v2"], "torch.tanh({0})", ["v1"]),
        Statement(["v3"], "{0}.sum() > 0", ["v2"]),
        Statement(["v4"], "torch.cond({0}, then, other, ({1}, {2}))", ["v3", "v2", "x1"], branch),
        Statement([], "self.b5.add_(1)", []),
        Statement(["v6"], "{0} * {1}", ["v4", "self.b5"]),
        Statement(["v7", "v8"], "{0}.chunk(2, 1)", ["v6"]),
    ]
    kinds = {name: copy.deepcopy(square) for name in ("v1", "v2", "v4", "v6")}
    kinds |= {"v3": Kind("bool", []), "v7": Kind("float32", ["s0", 2]), "v8": Kind("float32", ["s0", 2])}
    forward = Method(
        [Input("x0", "float32", ["s0", 4]), Input("x1", "float32", ["s0", 4])],
        {"l1": "nn.Linear(4, 4)"},
        [Buffer("b5", "float32", [4])],
        statements,
        ["v7", "v8", "v2", "v7"],
        kinds,
    )
    second = Method([Input("x0", "int64", [3], "0:5")], {}, [], [Statement(["v0"], "{0} + 1", ["x0"])], ["v0"])
    sizes = [{"s0": 7}, {"s0": 3}, {"s0": 1}]
    lowering = Lowering(one_step=True, blocklist=["add.Tensor", "mul.Tensor"])
    return Program(11, {"s0": [1, 7]}, {"s0": 4}, sizes, {"forward": forward, "second": second}, lowering)


def test_random_program_json_round_trips():
    program = many_statements()
    assert Program.from_json(program.to_json()) == program


def test_random_program_python_text_runs():
    program = many_statements()
    text = program.to_python()
    compile(text, "printed", "exec")
    assert source(program.methods["forward"], "Forward") in text
    assert "v7, v8 = v6.chunk(2, 1)" in text and "v4 = torch.cond(v3, then, other, (v2, x1))" in text
    assert "self.register_buffer('b5'" in text and "s0 = Dim('s0', min=1, max=7)" in text


def test_state_is_called_again_after_a_reset():
    program = many_statements()
    assert [len(run) for run in program.sequences("forward")] == [3, 2]
    assert [len(run) for run in program.sequences("second")] == [3]


def has(program: Program, code: str) -> bool:
    return any(s.code == code for m in program.methods.values() for s in m.statements)


def test_pruning_keeps_what_outputs_and_state_need():
    program = many_statements()
    method = program.methods["forward"]
    method.outputs = ["v2"]
    program.prune()
    assert [s.results for s in method.statements] == [["v1"], ["v2"], []]
    assert [i.name for i in method.inputs] == ["x0"] and list(method.layers) == ["l1"] and len(method.buffers) == 1
    assert set(method.kinds) == {"v1", "v2"}


def test_minimize_finds_planted_fault():
    small = minimize(many_statements(), lambda p: has(p, "torch.tanh({0})"))
    assert [s.code for m in small.methods.values() for s in m.statements] == ["torch.tanh({0})"]
    (method,) = small.methods.values()
    assert len(method.inputs) == len(method.outputs) == len(small.calls) == 1
    assert not method.layers and not method.buffers and not small.symbols and small.lowering == Lowering()
    assert Program.from_json(small.to_json()) == small


def test_minimize_keeps_statements_that_fail_together():
    def fails(program: Program) -> bool:
        return has(program, "self.b5.add_(1)") and "mul.Tensor" in program.lowering.blocklist and bool(program.symbols)

    small = minimize(many_statements(), fails)
    assert fails(small)
    assert small.lowering == Lowering(blocklist=["mul.Tensor"]) and list(small.symbols) == ["s0"]
    assert sum(len(m.statements) for m in small.methods.values()) == 1


def test_minimize_shortens_branches():
    def fails(program: Program) -> bool:
        return any(
            s.code == "{0} + b"
            for m in program.methods.values()
            for o in m.statements
            for b in o.branches
            for s in b.statements
        )

    (method,) = minimize(many_statements(), fails).methods.values()
    (statement,) = method.statements
    assert [len(block.statements) for block in statement.branches] == [1, 1]
    assert statement.branches[0].statements[0].args == ["a"]


def test_minimize_candidates_can_be_printed():
    program = many_statements()
    for candidate in candidates(program):
        compile(candidate.to_python(), "printed", "exec")
        assert all(name in candidate.to_python() for method in candidate.methods.values() for name in method.outputs)
    assert any(size(c) < size(program) for c in candidates(program))


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("got", "reference", "allowed", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.1], [0.0, 0.2], ""),
        ([1.0, 2.0], [1.0, 2.3], [0.0, 0.2], "1 of 2 numbers"),
        ([NAN, 2.0], [1.0, 2.0], [0.1, 0.1], "1 of 2 numbers"),
        ([1.0, 2.0], [NAN, 2.0], [0.1, 0.1], "1 of 2 numbers"),
        ([NAN, INF], [NAN, INF], [0.0, 0.0], ""),
        ([-INF, 1.0], [INF, 1.0], [0.1, 0.1], "1 of 2 numbers"),
        ([INF, 1.0], [3e38, 1.0], [1e30, 0.0], "1 of 2 numbers"),
        ([5.0, 1.0], [1.0, 1.0], [INF, 0.0], ""),
    ],
)
def test_numbers_are_compared_one_by_one(got, reference, allowed, expected):
    text = difference((np.array(got, np.float32),), [np.array(reference, np.float32)], [np.array(allowed)])
    assert expected in text and bool(text) == bool(expected)


def test_dtypes_shapes_and_counts_are_compared():
    one = np.zeros(3, np.float32)
    assert "float64[3], not float32[3]" in difference((one.astype(np.float64),), [one], [one])
    assert "float32[3], not float32[1, 3]" in difference((one,), [one[None]], [one[None]])
    assert "2 outputs instead of 1" in difference((one, one), [one], [one])


def test_integers_may_come_back_wider_but_not_narrower():
    """The exporter declares i64 for a scalar of i32 plus 1, and what a file declares is returned."""
    narrow, wide = np.array([1, 2], np.int32), np.array([1, 2], np.int64)
    assert difference((wide,), [narrow], [np.zeros(2)]) == ""
    assert "differ" in difference((wide + 1,), [narrow], [np.zeros(2)])
    assert "int32[2], not int64[2]" in difference((narrow,), [wide], [np.zeros(2)])


def test_findings_that_differ_in_numbers_alone_are_one():
    first, second = Outcome("refused", "value 3 of 1.5e-3\nat 7"), Outcome("refused", "value 12 of 4\nat 9")
    assert first.reason == second.reason == "value N of N"
