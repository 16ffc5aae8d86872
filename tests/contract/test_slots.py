"""Rows of any slots in one pass give the bits that the program gives each sequence alone."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.harness.devices import gpu_of
from tests.support.harness.errors import raises
from tests.support.models.llama import llama
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.device import Gpu, adapter_caps
from webpte.fusion.batching import with_slots
from webpte.graph import DType
from webpte.llm import LLM
from webpte.llm.engine.runner import BatchedRunner, BatchToken, SampleRow
from webpte.llm.sampling import RowSamplingParams
from webpte.plan.planner import Planner

CONTEXT, VOCAB = 64, 128
VARIANTS = {
    "llama": 1e-5,
    "llama_4w_emb4": 1e-5,
    "llama_hfrope_4w": 1e-5,
    "llama_8da4w_emb4": 1e-5,
    "llama_4w_fp16": 4e-3,
    "full logits": 1e-5,
}
LENGTHS = (9, 5, 7)
SLOTS = (2, 0, 3)  # of the four there are


@pytest.fixture
def texts():
    random = np.random.default_rng(5)
    return [random.integers(0, VOCAB, length) for length in LENGTHS]


@pytest.fixture
def runner():
    with webpte.load(export("llama_4w_emb4").path) as program:
        yield BatchedRunner(program, max_slots=8)


def test_slots_warm_model_plans_nothing(tmp_path, monkeypatch):
    with LLM.load(write_tiny_llm(tmp_path) / "tiny.pte", max_sequences=5) as llm:
        llm.warmup()
        planned: list[object] = []
        monkeypatch.setattr(Planner, "missing", lambda self, *args: planned.append(args))
        for count in range(1, 6):
            asked = [{"tokens": [7 + k], "max_new_tokens": 4} for k in range(count)]
            assert [len(answer.tokens) for answer in llm.generate_many(asked, stop=[])] == [4] * count
        assert not planned and llm.engine.runner.num_slots == 5


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_of_many_slots_equal_single_sequences(name, texts):
    exported = export(llama, quantize="8da4w", full_logits=True) if name == "full logits" else export(name)
    with webpte.load(exported.path) as program:
        alone, many = program.method(), program.method(rewrite=lambda graph: with_slots(graph, 4).graph)
        expected = []
        for text in texts:
            alone.reset()
            steps = [np.asarray(alone(np.array([[token]]), np.array([at]))) for at, token in enumerate(text)]
            expected.append([step.reshape(-1, step.shape[-1])[-1] for step in steps])
        read = [(k, at) for k, text in enumerate(texts) for at in range(len(text) - 2)]
        passes = [(read, 0), *(([(k, len(text) - 2) for k, text in enumerate(texts)], ahead) for ahead in (0, 1))]
        for rows, advance in passes:
            tokens = np.array([[texts[k][at + advance] for k, at in rows]])
            places = np.array([(SLOTS[k], at) for k, at in rows], np.int32)
            picked = np.arange(len(rows), dtype=np.int32)[::-1].copy()
            actual = many(tokens, places, 0 if rows is read else len(rows), picked, advance)
            reference = np.array([expected[k][at + advance] for k, at in reversed(rows)])
            assert_close(actual, reference, VARIANTS[name], VARIANTS[name], f"{name}, {len(rows)} rows")


@pytest.mark.parametrize("name", ["llama_4w_emb4", "llama_hfrope_4w", "llama_4w_fp16"])
def test_rows_that_share_their_keys_have_the_bits_of_single_ones(name, texts):
    with webpte.load(export(name).path) as program:
        many = program.method(rewrite=lambda graph: with_slots(graph, 4).graph)
        rows = [(k, at) for k, text in enumerate(texts) for at in range(len(text))]
        tokens = np.array([[texts[k][at] for k, at in rows]])
        places = np.array([(SLOTS[k], at) for k, at in rows], np.int32)
        first = np.zeros(1, np.int32)
        apart = [many(tokens[:, r : r + 1], places[r : r + 1], 1, first, 0)[0] for r in range(len(rows))]
        together = many(tokens, places, 0, np.arange(len(rows), dtype=np.int32), 0)
        assert together.tobytes() == np.stack(apart).tobytes()
        # The last of each, beside each other and after the first two a piece of another.
        last = np.cumsum(LENGTHS) - 1
        mixed = [*last[:2], *range(last[1] + 1, len(rows))]
        result = many(tokens[:, mixed], places[mixed], 2, np.arange(len(mixed), dtype=np.int32), 0)
        assert result.tobytes() == np.stack([apart[r] for r in mixed]).tobytes()


def test_slots_row_same_bits_with_any_other_rows():
    """At a context that is worth splitting, as one of few and of many rows, beside decoding and reading others."""
    random = np.random.default_rng(7)
    with webpte.load(export("smollm_1").path) as program:
        runner = BatchedRunner(program, max_slots=4)
        runner.grow(4)
        texts = random.integers(0, 49152, (3, 700))
        for slot, text in enumerate(texts):
            for start in range(0, 700, 250):
                piece = enumerate(text[start : start + 250], start)
                runner.run([BatchToken(int(token), slot, at) for at, token in piece], [])
        own = BatchToken(17, 1, 700)
        expected = runner.logits([own])
        assert np.isfinite(expected).all()
        others = [BatchToken(5, 0, 640), BatchToken(6, 2, 690)]
        reading = [BatchToken(9, 3, at) for at in range(40)]
        for company in (others, reading[:3], [*others, *reading[:9]], [*others, *reading]):
            assert (runner.logits([*company, own]) == expected).all()


def test_slots_saved_plan_equals_program(tmp_path, texts):
    path = export("llama_4w_emb4").path
    with webpte.load(path) as program:
        many = program.method(rewrite=lambda graph: with_slots(graph, 2).graph)
        tokens = texts[0][None, :5]
        places = np.array([(1, at) for at in range(5)], np.int32)
        picked = np.array([0, 4], np.int32)
        expected = many(tokens, places, 0, picked, 0)
        many.save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan", data=[path]) as saved:
        assert (saved.method()(tokens, places, 0, picked, 0) == expected).all()


def test_slots_idle_row_changes_nothing(texts):
    with webpte.load(export("llama_4w_emb4").path) as program:
        many = program.method(rewrite=lambda graph: with_slots(graph, 2).graph)
        tokens = texts[0][None, :4]
        last = np.array([3], np.int32)
        places = np.array([(1, at) for at in range(4)], np.int32)
        many(tokens, places, 0, last, 0)
        before = [bytes(piece) for piece in many._state.read()]
        for slot, position in ((-2, 0), (1, 0), (-1, CONTEXT), (0, -5)):
            idle = places + np.array((slot, position))
            many(tokens, idle.astype(np.int32), 0, last, 0)
            assert [bytes(piece) for piece in many._state.read()] == before


def _read(runner: BatchedRunner, slot: int, text: np.ndarray) -> None:
    runner.run([BatchToken(int(token), slot, at) for at, token in enumerate(text)], [])


def test_slots_copied_prefix_continues_independently(runner, texts):
    text = texts[0]
    _read(runner, 0, text[:-1])
    runner.grow(4)
    runner.copy(0, 3, len(text) - 1)
    _read(runner, 0, texts[1])  # over the original
    kept = runner.logits([BatchToken(int(text[-1]), 3, len(text) - 1)])
    _read(runner, 1, text[:-1])
    assert (kept == runner.logits([BatchToken(int(text[-1]), 1, len(text) - 1)])).all()
    assert np.abs(kept).max() > 0.1


def test_growing_needs_no_buffer_of_all_slots_at_once(runner, monkeypatch):
    """That of a real model would be larger than a device must allow."""
    created = []
    create = Gpu.create_buffer

    def noted(gpu, label, nbytes, usage):
        created.append((label, nbytes))
        return create(gpu, label, nbytes, usage)

    monkeypatch.setattr(Gpu, "create_buffer", noted)
    runner.grow(2)
    runner.grow(4)
    assert created and "state on its way" not in [label for label, _ in created]


def test_slots_are_read_and_written_apart(runner, texts):
    runner.grow(3)
    for slot, text in enumerate(texts):
        _read(runner, slot, text)
    count = len(texts[0])
    pieces = [bytes(piece) for piece in runner.read(0, count)]
    assert [len(piece) for piece in pieces] == runner.sizes(count)
    others = [bytes(piece) for piece in runner.read(1, CONTEXT)]
    runner.write(2, count, [memoryview(piece) for piece in pieces])
    assert [bytes(piece) for piece in runner.read(2, count)] == pieces
    assert [bytes(piece) for piece in runner.read(1, CONTEXT)] == others
    assert any(any(piece) for piece in pieces)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_steps_that_follow_each_other_equal_separate_steps(runner, texts, temperature, monkeypatch):
    runner.grow(4)

    def at(step: int, tokens: list[int]) -> tuple[list[BatchToken], list[SampleRow]]:
        rows = [BatchToken(token, SLOTS[k], len(texts[k]) + step) for k, token in enumerate(tokens)]
        choices = [RowSamplingParams(temperature=temperature, seed=k, step=step) for k in range(len(rows))]
        return rows, [SampleRow(k, choice) for k, choice in enumerate(choices)]

    for slot, text in zip(SLOTS, texts, strict=True):
        _read(runner, slot, text)
    first = [1, 2, 3]
    events: list[str] = []
    recorder = gpu_of(runner.method).recorder
    for name in ("enqueue", "map"):
        real = getattr(recorder, name)

        def recorded(*args, name=name, real=real):
            events.append(name)
            return real(*args)

        monkeypatch.setattr(recorder, name, recorded)
    started = runner.start_steps(*at(0, first), 2)
    following = started.follow(3)
    assert following is not None
    together = [[chosen.token for chosen in result] for steps in (started, following) for result in steps.take()]
    assert events == ["enqueue", "enqueue", "map", "map"]
    assert following.follow(CONTEXT) is None  # beyond the slots
    apart: list[list[int]] = []
    for step in range(5):
        result = runner.run(*at(step, apart[-1] if apart else first))
        apart.append([chosen.token for chosen in result])
    assert following.follow(1) is None  # what it would be fed is overwritten
    assert together == apart
    assert len({tuple(tokens) for tokens in apart}) > 1


def test_half_caches_take_half(texts):
    with webpte.load(export("llama_4w_emb4").path) as program:
        whole, half = BatchedRunner(program, 2), BatchedRunner(program, 2, {DType.FLOAT32: DType.FLOAT16})
        for runner in (whole, half):
            _read(runner, 0, texts[0])
        saved = 2 if "shader-f16" in adapter_caps().features else 1
        assert [saved * size for size in half.sizes(3)] == whole.sizes(3)
        rows = [BatchToken(7, 0, len(texts[0]))]
        assert_close(half.logits(rows), whole.logits(rows), 1e-2, 1e-2, "half caches")


def test_rows_outside_are_refused_before_anything_runs(runner):
    for row in (BatchToken(1, 1, 0), BatchToken(1, 0, CONTEXT), BatchToken(1, -1, 0), BatchToken(1, 0, -1)):
        with raises(webpte.InputError, f"1 slots of {CONTEXT}"):
            runner.run([row], [])
    with raises(webpte.InputError, f"{runner.max_batch_tokens} tokens", 40):
        runner.run([BatchToken(1, 0, at) for at in range(40)], [])


@pytest.mark.parametrize(
    ("name", "code"),
    [("llama_static1", "static_shapes"), ("llama_nokv", "other_inputs")],
)
def test_programs_without_batching_state_reason(name, code):
    with webpte.load(export(name).path) as program:
        with raises(webpte.UnsupportedError, "forward", code=code):
            program.method(rewrite=lambda graph: with_slots(graph, 4).graph)
        program.method()
