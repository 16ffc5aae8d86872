"""The mutants: what to change in src/webpte, and the test that notices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # in src/webpte
    old: str  # must be there exactly once
    new: str
    test: str  # arguments of pytest


MUTANTS = (
    Mutant(
        "state taken from the pool of shared constants",
        "plan/memory.py",
        "if not state and identity in pooled:",
        "if identity in pooled:",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "state put into the pool of shared constants",
        "plan/memory.py",
        "            if not state:\n                pooled[identity] = number",
        "            pooled[identity] = number",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "what was decided on does not select the schedule",
        "lowering/context.py",
        "number = self.decisions[term] = self.numbers(term)",
        "number = self.numbers(term)",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "schedules without shape scalars in their key",
        "plan/schedules.py",
        ", *(live.term(s, graph) for s in segment.scalars))",
        ",)",
        "tests/null/test_lowering.py",
    ),
    Mutant(
        "select_as_symint pins other dims to the last element",
        "ops/create/scalars.py",
        "position = [0] * x.rank",
        "position = [-1] * x.rank",
        "tests/null/test_lowering.py",
    ),
    Mutant(
        "select_as_symint counts from the other end",
        "ops/create/scalars.py",
        "position[axis] = index % size",
        "position[axis] = -index % size",
        "tests/null/test_lowering.py",
    ),
    Mutant(
        "int64 range off by one above",
        "runtime/borders.py",
        "if low < INT32_LOW or high > INT32_HIGH:",
        "if low < INT32_LOW or high > INT32_HIGH + 1:",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "int64 range off by one below",
        "runtime/borders.py",
        "if low < INT32_LOW or high > INT32_HIGH:",
        "if low < INT32_LOW - 1 or high > INT32_HIGH:",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "int64 range too narrow",
        "runtime/borders.py",
        "if low < INT32_LOW or high > INT32_HIGH:",
        "if low <= INT32_LOW or high >= INT32_HIGH:",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "rotary guard off by one",
        "ops/attention/rotary.py",
        "cx.guard(start.term, 0, rows - seq + 1, message)",
        "cx.guard(start.term, 0, rows - seq + 2, message)",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "rotary guard too narrow",
        "ops/attention/rotary.py",
        "cx.guard(start.term, 0, rows - seq + 1, message)",
        "cx.guard(start.term, 0, rows - seq, message)",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "folded grids not unfolded",
        "wgsl/lib/kernel.wgsl",
        "return id.x + id.y * groups.x * wg;",
        "return id.x;",
        "tests/gpu/test_folded_grids.py",
    ),
    Mutant(
        "folded grids of elementwise programs not unfolded",
        "ops/elementwise/elementwise.wgsl",
        "let start = (id.x + id.y * groups.x) * p.each * wg;",
        "let start = id.x * p.each * wg;",
        "tests/gpu/test_folded_grids.py",
    ),
    Mutant(
        "grids fold into rows of one less",
        "wgsl/grid.py",
        "return (-(-groups // rows), rows, 1)",
        "return (groups // rows, rows, 1)",
        "tests/null/test_uniforms.py",
    ),
    Mutant(
        "gelu by tanh with 0.0447",
        "ops/elementwise/formulas.wgsl",
        "0.044715",
        "0.0447",
        "tests/gpu/test_cases.py -k gelu",
    ),
    Mutant(
        "depthwise convolution ignores dilation along y",
        "ops/convolution/convolution_depthwise.wgsl",
        "ky * p.dilation[0].y",
        "ky",
        "tests/gpu/test_cases.py -k convolution",
    ),
    Mutant(
        "q4 scales of split weights without first",
        "ops/q4/linear_q4.wgsl",
        "let s = g * scale_stride + first;",
        "let s = g * scale_stride;",
        "tests/gpu/test_large_weights.py",
    ),
    Mutant(
        "q4 scales by lanes without first",
        "ops/q4/linear_q4_lanes.wgsl",
        "let s = (load / p.group_loads) * p.scale_stride + p.first;",
        "let s = (load / p.group_loads) * p.scale_stride;",
        "tests/gpu/test_large_weights.py",
    ),
    Mutant(
        "prefill reuses the whole prompt",
        "llm/model.py",
        "self._occupancy.common_prefix(prompt[:-1])",
        "self._occupancy.common_prefix(prompt)",
        "tests/export/test_llm.py",
    ),
    Mutant(
        "slices of live length one too long",
        "ops/layout/slicing.py",
        "take_range(cx, self, out, axis, first, -(-length // step), step)",
        "take_range(cx, self, out, axis, first, length // step, step)",
        "tests/gpu/test_cases.py -k slice_copy",
    ),
    Mutant(
        "uploads that another tenant overwrites count as kept",
        "plan/memory.py",
        "if self._is_kept(v, buffers[place[v]])",
        "if True",
        "tests/gpu/test_steps.py",
    ),
    Mutant(
        "an elided view of another size",
        "graph/elided.py",
        "(a.dtype, a.nbytes) == (b.dtype, b.nbytes)",
        "a.dtype == b.dtype",
        "tests/null/test_elided_views.py",
    ),
    Mutant(
        "an elided view of another dtype",
        "graph/elided.py",
        "(a.dtype, a.nbytes) == (b.dtype, b.nbytes)",
        "a.nbytes == b.nbytes",
        "tests/null/test_elided_views.py",
    ),
    Mutant(
        "a cache is written a row too far",
        "ops/attention/cache_write.wgsl",
        "let position = u32(live(p.start)) + token % p.seq;",
        "let position = u32(live(p.start)) + token % p.seq + 1u;",
        "tests/gpu/test_cases.py -k update_cache",
    ),
    Mutant(
        "live integers of more than 32 bits",
        "plan/schedules.py",
        "max(values.values()) > INT32_HIGH):",
        "max(values.values()) > INT32_HIGH + 1):",
        "tests/null/test_lowering.py",
    ),
    Mutant(
        "guards are not checked",
        "plan/schedules.py",
        "            if (refusal := guard.refusal(numbers)) is not None:",
        "            if (refusal := guard.refusal(numbers)) is False:",
        "tests/null/test_kept_alive.py",
    ),
    Mutant(
        "a slice that ends outside keeps its length",
        "ops/layout/slicing.py",
        'and cx.decide(apply("le", end, size)):',
        "and True:",
        "tests/null/test_lowering.py",
    ),
    Mutant(
        "NaN is not looked for before a function of one operand",
        "ops/elementwise/formulas.wgsl",
        "    if (is_nan(x)) {",
        "    if (false) {",
        "tests/export/test_special.py",
    ),
    Mutant(
        "silu of large negative numbers is not zero",
        "ops/elementwise/logistic.wgsl",
        "0.0, x < -88.0)",
        "0.0, false)",
        "tests/export/test_special.py",
    ),
    Mutant(
        "NaN in a mask of attention hides a key",
        "ops/attention/attention_rows.wgsl",
        "select(biased{{ t }}{{ i }}, LOWEST, biased{{ t }}{{ i }} < LOWEST)",
        "max(biased{{ t }}{{ i }}, LOWEST)",
        "tests/gpu/test_attention_nan.py",
    ),
    Mutant(
        "NaN is clamped by a convolution",
        "ops/convolution/convolution_put.wgsl",
        "clamp(order_key(value), p.lowest, p.highest)), value, is_nan(value))",
        "clamp(order_key(value), p.lowest, p.highest)), value, false)",
        "tests/export/test_special.py",
    ),
    Mutant(
        "large angles by the short way",
        "ops/elementwise/trigonometry.wgsl",
        "if (abs(x) > 50000.0) {",
        "if (false) {",
        "tests/export/test_special.py",
    ),
    Mutant(
        "a saved plan may bind what lies behind a buffer",
        "plan/schedule_json.py",
        " or offset + nbytes > size:",
        ":",
        "tests/null/test_saved_plans.py",
    ),
    Mutant(
        "a term of a saved plan may stand on an element that is not there",
        "plan/schedule_json.py",
        " and all(-size <= at < size for at, size in sizes)",
        "",
        "tests/null/test_saved_plans.py",
    ),
    Mutant(
        "a saved plan takes another file of the same size",
        "plan/opened.py",
        "file.size == size and file.sha256() == digest",
        "file.size == size",
        "tests/null/test_saved_plans.py",
    ),
    Mutant(
        "a saved schedule forgets what was decided on",
        "plan/schedule_json.py",
        "for term, number in schedule.decisions]",
        "for term, number in ()]",
        "tests/null/test_saved_plans.py",
    ),
)
