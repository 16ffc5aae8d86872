"""Norms, rotary embedding and attention that XnnpackPartitioner decomposed become single calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.studies.xnnpack.running import FOLDER
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.container import MappedFile, parse_program
from webpte.errors import UnsupportedError
from webpte.fusion.attention import ROTARY_ATTENTION
from webpte.fusion.batching import with_slots
from webpte.fusion.decompositions import PATTERN, recompose
from webpte.fusion.llm_rewrites import with_half_caches
from webpte.fusion.passes import PASSES, apply_passes
from webpte.fusion.row_axes import SLOT_ATTENTION
from webpte.graph import Bool, Call, Double, DType, Graph, Int, Value, build_graph
from webpte.graph.names import INT8_SCALE_BYTES
from webpte.lowering import mutated_positions
from webpte.plan import make_planner
from webpte.plan.segments import HostCalls
from webpte.runtime.kernels import CpuKernels
from webpte.wgsl import Caps

LAYERS = 2
NORM, NEIGHBOURS, HALVES, ATTENTION, SYMINT = (
    PATTERN[role][0] for role in ("norm", "neighbours", "halves", "attention", "symint")
)


@contextmanager
def opened(name: str) -> Iterator[Graph]:
    """Yield the graph of a sample's forward, whose file is open meanwhile."""
    with MappedFile(FOLDER / f"{name}.pte") as file:
        program = parse_program(file)
        plan = next(method for method in program.methods if method.name == "forward")
        yield build_graph(plan, program.named_data.get, mutated_positions)


@pytest.fixture(scope="module")
def llama() -> Iterator[Graph]:
    """Yield a Llama with 2 layers, which has 24 delegates."""
    with opened("llama_8da4w") as graph:
        yield graph


def counts(graph: Graph) -> Counter[str]:
    return Counter(call.name for call in graph.calls)


def test_pieces_of_norms_rotations_and_attention_become_calls(llama):
    after = counts(recompose(llama))
    assert after[NORM] == 2 * LAYERS + 1
    assert after[NEIGHBOURS] == after[ATTENTION] == LAYERS
    assert after[SYMINT] == 1  # five calls read the position
    assert not [name for name in after if "mean" in name or "update_cache" in name or "scalar_dense" in name]


def test_planned_llama_is_one_submit_with_the_fused_kernels(llama):
    graph, _ = apply_passes(llama, tuple(PASSES))
    names = counts(graph)
    assert names[ROTARY_ATTENTION] == LAYERS and len(graph.steps) == 23 and len(llama.steps) > 150
    plan = make_planner(llama, Caps(), (), False, tuple(PASSES), {}).plan
    assert len(plan.flow.segments) == len(plan.flow.blocks[0].stages) == 1


def test_batched_llama_attends_by_slots(llama):
    graph = with_slots(llama, 4, {DType.FLOAT32: DType.FLOAT16}).graph
    assert counts(graph)[SLOT_ATTENTION] == LAYERS


def test_caches_of_the_llama_can_be_halves(llama):
    graph = with_half_caches(llama)
    halves = [spec for spec in graph.values if getattr(spec, "dtype", None) is DType.FLOAT16]
    assert len(halves) == 2 * LAYERS


@pytest.fixture(scope="module")
def coded() -> Iterator[Graph]:
    """Yield a Llama with 2 layers, whose caches are int8."""
    with opened("llama_fp32_q8kv") as graph:
        yield graph


@pytest.mark.parametrize(
    ("caches", "dtype", "width"),
    [
        ({}, DType.INT8, 16 + INT8_SCALE_BYTES),
        ({DType.FLOAT32: DType.FLOAT16}, DType.INT8, 16 + INT8_SCALE_BYTES),
        ({DType.INT8: DType.FLOAT16}, DType.FLOAT16, 16),
    ],
)
def test_batched_llama_with_an_int8_cache_attends_by_slots(coded, caches, dtype, width):
    graph = with_slots(coded, 4, caches).graph
    names = counts(graph)
    assert names[SLOT_ATTENTION] == LAYERS
    assert not [name for name in names if "quantize_per_token" in name or "qparams" in name or "update_cache" in name]
    caches = {graph.tensor(v) for call in graph.calls if call.name == SLOT_ATTENTION for v in call.args[3:5]}
    assert {(cache.dtype, cache.dims) for cache in caches} == {(dtype, (4, 32, 2, width))}


def test_rotations_before_codes_become_calls(coded):
    assert counts(recompose(coded))[NEIGHBOURS] == LAYERS


@pytest.mark.parametrize(
    ("kernel", "position", "value"),
    [
        ("quantized_decomposed::quantize_per_token.out", 3, Int(-127)),
        ("llama::custom_quantized_sdpa.out", 14, Bool(True)),
        ("llama::update_cache.out", 2, Int(0)),
    ],
)
def test_codes_of_another_kind_are_not_batched(coded, kernel, position, value):
    with raises(UnsupportedError, code="coded_cache"):
        with_slots(changed(coded, kernel, with_argument(position, value)), 4)


def test_scales_of_other_numbers_are_not_batched(coded):
    first = next(call for call in coded.calls if call.name == "llama::update_cache.out")
    assert coded.tensor(first.args[0]).dtype is DType.FLOAT32
    other = next(c for c in coded.calls if c.name == "aten::_to_copy.out" and coded.tensor(c.outs[0]).dims[2] == 4)
    with raises(UnsupportedError, code="coded_cache"):
        with_slots(changed(coded, first.name, lambda call, _: replace(call, args=(*other.outs, *call.args[1:]))), 4)


def test_recompose_query_read_before_key_exists_keeps_rotation(coded):
    """The query becomes codes before the call that rotates the key."""
    rotations = counts(recompose(coded))[NEIGHBOURS]
    calls = list(coded.calls)
    views = [call for call in calls if call.name == "executorch_prim::et_view.default"]
    query = next(view for view in views if coded.tensor(view.outs[0]).dims[2:] == (4, 16))
    key = calls[calls.index(query) + 1]
    assert coded.tensor(key.outs[0]).dims[2:] == (2, 16)
    steps = list(coded.steps)
    readers = [call for call in coded.calls if query.outs[0] in call.args]
    for step in (key, *readers):
        steps.remove(step)
    at = steps.index(query) + 1
    steps[at:at] = [*readers, key]
    assert counts(recompose(replace(coded, steps=tuple(steps))))[NEIGHBOURS] == rotations - 1


def test_scales_and_zero_points_of_quantized_caches_stay_on_the_device(coded):
    plan = make_planner(coded, Caps(), CpuKernels(), False, tuple(PASSES), {}).plan
    stages = plan.flow.blocks[0].stages
    assert len(stages) == 1 and not isinstance(stages[0], HostCalls)


def changed(graph: Graph, name: str, change: Callable[[Call, list[Value]], Call]) -> Graph:
    """The graph with the first call of a kernel changed. New values are appended to the list."""
    values, steps = list(graph.values), list(graph.steps)
    index = next(i for i, step in enumerate(steps) if isinstance(step, Call) and step.name == name)
    call = steps[index]
    assert isinstance(call, Call)
    steps[index] = change(call, values)
    return replace(graph, values=tuple(values), steps=tuple(steps))


def with_argument(position: int, value: Value) -> Callable[[Call, list[Value]], Call]:
    def change(call: Call, values: list[Value]) -> Call:
        values.append(value)
        return replace(call, args=(*call.args[:position], len(values) - 1, *call.args[position + 1 :]))

    return change


@pytest.mark.parametrize(
    ("kernel", "position", "value", "role", "left"),
    [
        ("aten::mean.out", 2, Bool(False), NORM, 2 * LAYERS),
        ("aten.add.Tensor", 2, Int(2), NORM, 2 * LAYERS),
        ("aten.sub.Tensor", 2, Int(2), NEIGHBOURS, LAYERS - 1),
        ("aten.cat.default", 1, Int(3), NEIGHBOURS, LAYERS - 1),
        ("llama::update_cache.out", 2, Int(0), ATTENTION, LAYERS - 1),
    ],
)
def test_recompose_other_constants_keep_calls_apart(llama, kernel, position, value, role, left):
    graph = changed(llama, kernel, with_argument(position, value))
    assert counts(recompose(graph))[role] == left


def test_recompose_cache_with_second_reader_keeps_calls_apart(llama):
    read = next(call for call in llama.calls if call.name == "llama::custom_sdpa.out")
    again = replace(read, outs=(len(llama.values),))
    graph = replace(
        llama,
        values=(*llama.values, llama.values[read.outs[0]]),
        steps=(*llama.steps, again),
        outputs=(*llama.outputs, *again.outs),
    )
    after = counts(recompose(graph))
    assert (after[ATTENTION], after["llama::custom_sdpa.out"]) == (LAYERS - 1, 2)
    with raises(UnsupportedError, code="extra_state"):
        with_slots(graph, 2)


# -- halves ------------------------------------------------------------------------------------------------------------

S, H, D = 8, 2, 16


class HalfLayer(GraphBuilder):
    """Hugging Face's rotary embedding and attention of older exports, whose caches are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.x = [self.tensor(1, S, H, D, dynamic=True) for _ in "qkv"]
        self.position = self.tensor(1, dtype=DType.INT32)
        self.tables = [self.tensor(S, D) for _ in "cs"]
        self.caches = [self.tensor(1, 32, H, D, mutable=True) for _ in "kv"]

    def make(self, name: str, args: tuple[int, ...], *dims: int, kernel: bool = False) -> int:
        out = self.tensor(*dims)
        self.call(name, args, out, kernel=kernel)
        return out

    def rotated(self, x: int, middle: int = D // 2) -> int:
        cosine, sine = (self.make("aten.unsqueeze_copy.default", (t, self.number(1)), S, 1, D) for t in self.tables)
        last, one = self.number(3), self.number(1)
        low = self.make("aten.slice_copy.Tensor", (x, last, self.number(0), self.number(middle), one), 1, S, H, D // 2)
        end = self.number(2**63 - 1)
        high = self.make("aten.slice_copy.Tensor", (x, last, self.number(D // 2), end, one), 1, S, H, D // 2)
        pair = self.list(self.make("aten.neg.default", (high,), 1, S, H, D // 2), low)
        turned = self.make("aten.cat.default", (pair, last), 1, S, H, D)
        products = [self.make("aten.mul.Tensor", (a, t), 1, S, H, D) for a, t in ((turned, sine), (x, cosine))]
        total = self.make("aten.add.Tensor", (*products, one), 1, S, H, D)
        return self.make("aten::cat.out", (self.list(total), self.number(-1)), 1, S, H, D, kernel=True)

    def attended(self, query: int, key: int) -> Graph:
        chosen, start = self.tensor(dtype=DType.INT32), self.symint()
        self.call("aten::select_copy.int_out", (self.position, self.number(0), self.number(-1)), chosen, kernel=True)
        self.call("aten::_local_scalar_dense", (chosen,), start, kernel=True)
        options = (start, self.number(1), self.null(), self.add(Double(0.0)), self.add(Bool(True)), self.null())
        args = (query, key, self.x[2], *self.caches, *options)
        out = self.make("llama::sdpa_with_kv_cache.out", args, 1, S, H, D, kernel=True)
        return self.graph([*self.x, self.position, *self.tables], [out])


def test_rotated_halves_and_older_attention_become_one_call():
    layer = HalfLayer()
    graph = recompose(layer.attended(layer.rotated(layer.x[0]), layer.rotated(layer.x[1])))
    assert [call.name for call in graph.calls] == [HALVES, SYMINT, ATTENTION]
    assert graph.calls[0].args[:4] == (*layer.x[:2], *layer.tables)


def test_rotations_of_one_operand_or_of_other_elements_stay():
    for middle, both in ((D // 2 - 1, True), (D // 2, False)):
        layer = HalfLayer()
        key = layer.rotated(layer.x[1]) if both else layer.x[1]
        graph = recompose(layer.attended(layer.rotated(layer.x[0], middle), key))
        assert HALVES not in counts(graph)
