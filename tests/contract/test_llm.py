"""Generating with the tiny Llama: what a session remembers, how answers end, what a step costs."""

from __future__ import annotations

import collections
import shutil
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.devices import destroy_device
from tests.support.harness.errors import raises
from tests.support.models.tiny_llm import CHUNK, CONTEXT, VOCAB, tokens_of, write_tiny_llm
from webpte import CancelToken
from webpte.device import Gpu, adapter_caps
from webpte.fusion.llm_rewrites import with_half_caches
from webpte.llm import LLM, ContextFullError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_llm(tmp_path_factory.mktemp("llm"))


@pytest.fixture
def llm(folder):
    with LLM.load(folder / "tiny.pte") as model:
        model.stop_tokens = frozenset()  # random weights choose any token; runs shall be long
        yield model


@pytest.fixture
def talk(llm):
    """Return one conversation with it."""
    return llm.sequence()


def test_metadata_comes_from_the_program(folder):
    with LLM.load(folder / "tiny.pte") as model:
        assert (model.capacity, model.engine.runner.max_batch_tokens) == (CONTEXT, CHUNK)
        assert {2, 3} <= model.stop_tokens


def test_greedy_tokens_are_the_argmax_of_the_logits(talk):
    generation = talk.complete("hello", max_new_tokens=8)
    generation.result()
    other = talk.llm.sequence()
    tokens = list(b"hello")
    for expected in generation.tokens:
        logits = other.logits(tokens)
        assert int(logits.argmax()) == expected
        tokens = [expected]


@pytest.mark.parametrize("count", [1, 2, 30, 31, 32, 45, 62])
def test_prefill_in_pieces_equals_feeding_one_by_one(talk, count):
    prompt = [(7 * i + 3) % VOCAB for i in range(count)]
    single = talk.fork()
    for token in prompt:
        stepped = single.logits([token])
    for start in range(0, count, CHUNK):
        whole = talk.logits(prompt[start : start + CHUNK])
    assert np.abs(whole - stepped).max() <= 1e-3
    assert whole.argmax() == stepped.argmax()


def test_sequence_logits_of_all_tokens_equal_single_steps(talk):
    prompt = [(7 * i + 3) % VOCAB for i in range(45)]  # more than a call takes
    single = talk.fork()
    stepped = np.concatenate([single.logits([token]) for token in prompt])
    result = talk.logits(prompt, every=True)
    assert result.shape == (45, VOCAB) and np.abs(result - stepped).max() <= 1e-3
    assert np.array_equal(result[-1:], talk.llm.sequence().logits(prompt))


def test_complete_known_prefix_is_reused(talk):
    first = talk.complete("the quick brown fox", max_new_tokens=4)
    first.result()
    assert first.usage.reused_tokens == 0
    second = talk.complete("the quick brown dog", max_new_tokens=4)
    second.result()
    assert second.usage.reused_tokens == len("the quick brown ")
    talk.reset()
    again = talk.complete("the quick brown dog", max_new_tokens=4)
    assert again.result() == second.text and again.usage.reused_tokens == 0


def test_complete_known_prompt_recomputes_last_token(llm):
    """The logits after a cached prompt are not stored, so its last token is computed again."""
    first = llm.complete("the quick brown fox", max_new_tokens=4)
    first.result()
    again = llm.complete("the quick brown fox", max_new_tokens=4)
    assert again.result() == first.text and again.usage.reused_tokens == len("the quick brown fox") - 1


@pytest.fixture
def stepwise(llm):
    """Return the model without its thread: a step is run when its token is read, and nothing else."""
    llm.engine.background = False
    return llm


def test_decode_step_dispatch_and_byte_counts(stepwise):
    llm = stepwise
    generation = iter(llm.complete("hello", max_new_tokens=12, tokens_per_submit=1, speculate=False))
    for _ in range(3):
        next(generation)
    for _ in range(5):
        before, lowered = llm.engine.runner.method.counters.snapshot(), llm.engine.runner.method.lowerings
        next(generation)
        done = llm.engine.runner.method.counters.since(before)
        assert (done.buffers, done.bind_groups, done.pipelines, done.shader_modules) == (0, 0, 0, 0)
        assert (done.passes, done.submits, done.output_bytes) == (1, 1, 4)
        assert llm.engine.runner.method.lowerings == lowered


SAMPLING_WORDS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.5, "top_k": 50, "top_p": 0.95, "seed": 3, "logprobs": True},
)


@pytest.mark.parametrize("settings", SAMPLING_WORDS)
def test_tokens_per_submit_same_tokens_as_single_steps(talk, settings):
    def answer(count):
        talk.reset()
        generation = talk.complete("hello", max_new_tokens=100, tokens_per_submit=count, **settings)
        pieces = [(piece.token, piece.logprob) for piece in generation]
        return pieces, generation.usage.finish_reason, talk.position

    single = answer(1)
    assert len(single[0]) == CONTEXT - len("hello") + 1 and single[1:] == ("length", CONTEXT)
    for count in (2, 3, 8):
        assert answer(count) == single


def test_tokens_per_submit_is_one_submit(stepwise):
    llm = stepwise
    generation = iter(llm.complete("hello", max_new_tokens=40, tokens_per_submit=8, speculate=False))
    for _ in range(9):  # the first comes out of prefill, then one burst
        next(generation)
    before = llm.engine.runner.method.counters.snapshot()
    for _ in range(8):
        next(generation)
    done = llm.engine.runner.method.counters.since(before)
    assert (done.passes, done.submits, done.output_bytes) == (8, 1, 32)
    assert (done.buffers, done.bind_groups, done.pipelines) == (0, 0, 0)


def test_stop_inside_multi_step_leaves_no_trace(talk):
    tokens = [piece.token for piece in talk.complete("hello", max_new_tokens=20, tokens_per_submit=1)]
    talk.llm.stop_tokens = frozenset({tokens[4]})
    result = tokens.index(tokens[4]) + 1
    for count in (1, 8):
        talk.reset()
        generation = talk.complete("hello", max_new_tokens=20, tokens_per_submit=count)
        assert [piece.token for piece in generation] == tokens[:result]
        assert talk.position == len("hello") + result - 1
    talk.reset()
    stream = iter(talk.complete("hello", max_new_tokens=20, tokens_per_submit=8))
    for _ in range(3):
        next(stream)
    stream.close()  # the reader leaves in the middle of a burst
    assert talk.position == len("hello") + 2


def test_bursts_hide_a_slow_readback(stepwise, monkeypatch):
    """On a device far away it is readbacks that cost time: eight tokens share one."""
    talk = stepwise.sequence()
    read, reads = Gpu.read, collections.Counter[int]()

    def counted(gpu, *arguments):
        reads[count] += 1
        return read(gpu, *arguments)

    monkeypatch.setattr(Gpu, "read", counted)
    for count in (1, 8):
        talk.reset()
        talk.complete("hello", max_new_tokens=41, tokens_per_submit=count, speculate=False).result()
    assert reads[1] == 41 and reads[8] <= 10


def test_complete_seed_repeats_and_other_seed_differs(talk):
    def draw(seed):
        talk.reset()
        return talk.complete("hello", max_new_tokens=30, temperature=1.5, top_k=50, top_p=0.95, seed=seed).result()

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_logprobs_equal_logits(talk):
    generation = talk.complete("hello", max_new_tokens=3, logprobs=True)
    pieces = list(generation)
    other = talk.llm.sequence()
    tokens = list(b"hello")
    for piece in pieces:
        row = other.logits(tokens)[0].astype(np.float64)
        want = row[piece.token] - np.log(np.exp(row - row.max()).sum()) - row.max()
        assert abs(piece.logprob - want) < 1e-4
        tokens = [piece.token]


def test_usage_and_finish_reasons(talk):
    length = talk.complete("hello", max_new_tokens=5)
    length.result()
    assert (length.usage.prompt_tokens, length.usage.completion_tokens, length.usage.finish_reason) == (5, 5, "length")
    talk.reset()
    full = talk.complete("x" * 60, max_new_tokens=50)
    full.result()
    assert full.usage.finish_reason == "length" and full.usage.completion_tokens == CONTEXT - 60 + 1
    talk.reset()
    talk.llm.stop_tokens = frozenset({length.tokens[2]})
    stopped = talk.complete("hello", max_new_tokens=50)
    stopped.result()
    assert stopped.usage.finish_reason == "stop" and stopped.tokens == length.tokens[:3]


def test_stop_strings_end_the_text_before_them(talk):
    whole = talk.complete("hello", max_new_tokens=20).result()
    talk.reset()
    cut = talk.complete("hello", max_new_tokens=20, stop=[whole[5:8]])
    assert cut.result() == whole[: whole.find(whole[5:8])]
    assert cut.usage.finish_reason == "stop"


def test_cancelling_keeps_the_session_usable(llm):
    cancel = CancelToken()
    generation = llm.complete("hello", max_new_tokens=50, cancel=cancel)
    for number, _ in enumerate(generation):
        if number == 3:
            cancel.cancel()
    assert generation.usage.finish_reason == "cancelled" and generation.usage.completion_tokens == 4
    cancelled = llm.complete("x" * 60, cancel=cancel)
    assert cancelled.result() == "" and cancelled.usage.finish_reason == "cancelled"
    assert len(llm.complete("hello", max_new_tokens=4).result()) == 4


def test_leaving_the_loop_early_is_a_cancel(llm):
    generation = llm.complete("hello", max_new_tokens=50)
    stream = iter(generation)
    next(stream)
    stream.close()
    assert generation.usage.finish_reason == "cancelled"


def test_prompt_exceeding_context_raises(talk):
    with raises(ContextFullError, "got 64 tokens", "fewer than 64"):
        talk.complete("x" * 64)
    talk.logits(list(range(30)))
    talk.logits(list(range(30)))
    with raises(ContextFullError, 5, "60 of 64"):
        talk.logits(list(range(5)))
    assert talk.logits([1]).shape == (1, VOCAB)


def test_rewind_forgets_the_last_tokens(talk):
    talk.logits(list(b"hello, hello"))
    want = talk.fork().logits([7])
    talk.logits([7])
    talk.logits([8])
    talk.rewind(2)
    assert talk.position == 12
    assert np.array_equal(talk.logits([7]), want)
    with raises(webpte.InputError, 99, 13):
        talk.rewind(99)


def test_forks_interleaved_equal_separate_runs(talk, folder):
    other = talk.fork()
    a, b = iter(talk.complete("first", max_new_tokens=10)), iter(other.complete("second", max_new_tokens=10))
    together = [(next(a).token, next(b).token) for _ in range(10)]
    for index, prompt in enumerate(("first", "second")):
        with LLM.load(folder / "tiny.pte") as alone:
            alone.stop_tokens = frozenset()
            generation = alone.complete(prompt, max_new_tokens=10)
            generation.result()
            assert generation.tokens == [pair[index] for pair in together]


def test_snapshots_carry_the_tokens(talk, folder, tmp_path):
    talk.logits(list(b"hello"))
    talk.snapshot(tmp_path / "state")
    want = talk.logits([7])
    with LLM.load(folder / "tiny.pte") as model:
        other = model.sequence()
        other.restore(tmp_path / "state")
        assert other.position == 5
        assert np.array_equal(other.logits([7]), want)


def test_chat_goes_through_the_template(llm):
    assert llm.render([{"role": "user", "content": "hi"}]) == "u:hi;a:"
    generation = llm.generate([{"role": "user", "content": "hi"}], max_new_tokens=2)
    generation.result()
    assert generation.usage.prompt_tokens == len("u:hi;a:")


def test_wrong_settings_are_refused(llm):
    with raises(webpte.InputError, "'tempurature'", "temperature"):
        llm.complete("x", tempurature=1)
    with raises(webpte.InputError, "prompt", code="empty_prompt"):
        llm.complete("")
    with raises(webpte.InputError, "top_p", 0, 1, 2):
        llm.complete("x", temperature=1, top_p=2.0)
    assert len(llm.complete("x", max_new_tokens=1).result()) == 1


def test_load_missing_tokenizer_is_named(tmp_path):
    shutil.copy(export("llama").path, tmp_path / "tiny.pte")
    with raises(webpte.InputError, "tokenizer.json", tmp_path / "tiny.pte"):
        LLM.load(tmp_path / "tiny.pte")


def test_half_caches_take_half_the_memory_with_close_logits(llm, folder):
    stored = 2 if "shader-f16" in adapter_caps().features else 4  # bytes of a half
    with LLM.load(folder / "tiny.pte", kv_cache="f16") as half:
        state = half.engine.runner.method.plan.bytes_by_kind()["state"]
        assert state * 4 == llm.engine.runner.method.plan.bytes_by_kind()["state"] * stored > 0
        whole, halved = llm.sequence(), half.sequence()
        for talk in (whole, halved):
            talk.logits(list(b"hello"))
        assert 0 < np.abs(halved.logits([7]) - whole.logits([7])).max() <= 2e-3
        halved.snapshot(folder / "half.state")
        if stored == 2:
            with raises(webpte.DataError, "half.state", code="buffer_sizes"):
                whole.restore(folder / "half.state")
    with raises(webpte.InputError, "kv_cache", "'auto', 'f32', 'f16', 'int8'", "'f8'"):
        LLM.load(folder / "tiny.pte", kv_cache="f8")  # type: ignore[arg-type]


@pytest.mark.parametrize("device, halved", [("gpu", True), ("gpu,no-f16", False), ("", False)])
def test_caches_by_default_are_half_on_gpus_that_have_it(llm, folder, monkeypatch, device, halved):
    monkeypatch.setenv("WEBPTE_DEVICE", device)
    halved = halved and "shader-f16" in adapter_caps().features
    with LLM.load(folder / "tiny.pte") as other:
        state = other.engine.runner.method.plan.bytes_by_kind()["state"]
        assert state * (2 if halved else 1) == llm.engine.runner.method.plan.bytes_by_kind()["state"] > 0
        whole, same = llm.sequence(), other.sequence()
        for talk in (whole, same):
            talk.logits(list(b"hello"))
        assert np.abs(same.logits([7]) - whole.logits([7])).max() <= (2e-3 if halved else 2e-5)


def test_caches_of_bytes_take_a_quarter_of_the_memory_and_a_scale_per_row(llm, folder, tmp_path):
    width = llm.engine.runner.method.plan.graph.tensor(next(iter(llm.engine.runner.method.plan.flow.state))).dims[-1]
    with LLM.load(folder / "tiny.pte", kv_cache="int8") as small:
        state = small.engine.runner.method.plan.bytes_by_kind()["state"]
        assert state * 4 * width == llm.engine.runner.method.plan.bytes_by_kind()["state"] * (width + 4) > 0
        whole, rounded = llm.sequence(), small.sequence()
        for talk in (whole, rounded):
            talk.logits(list(b"hello"))
        assert 0 < np.abs(rounded.logits([7]) - whole.logits([7])).max() <= 0.05
        rounded.snapshot(tmp_path / "bytes.state")
        following, other = rounded.logits([8]), small.sequence()
        other.restore(tmp_path / "bytes.state")
        np.testing.assert_array_equal(other.logits([8]), following)
        with raises(webpte.DataError, "bytes.state", code="buffer_sizes"):
            whole.restore(tmp_path / "bytes.state")


def test_caches_of_bytes_are_computed_again_after_a_loss(folder):
    with LLM.load(folder / "tiny.pte", kv_cache="int8", recover=True) as llm:
        llm.stop_tokens = frozenset()
        llm.engine.background = False  # the device is lost before the second token is computed
        expected = tokens_of(llm.generate("hello", max_new_tokens=10))
        answer = llm.generate("hello", max_new_tokens=10)
        assert next(answer).token == expected[0]
        destroy_device(llm.engine.runner.method)
        assert tokens_of(answer) == expected and llm.engine.runner.method.recoveries == 1


def test_caches_of_bytes_need_a_program_that_can_be_batched(folder, monkeypatch):
    def refuse(*args):
        raise webpte.UnsupportedError("it has branches", code="branches")

    monkeypatch.setattr("webpte.llm.engine.runner.with_sampled_slots", refuse)
    with raises(webpte.UnsupportedError, "kv_cache", "'int8'", "branches", code="kv_cache"):
        LLM.load(folder / "tiny.pte", kv_cache="int8")


def test_half_caches_need_caches():
    with webpte.load(export("add").path) as program, raises(webpte.UnsupportedError, "forward", code="no_kv_cache"):
        program.method("forward", with_half_caches)


def test_tune_covers_all_kernels_of_model(folder, tmp_path, monkeypatch, caplog):
    """Attention among them, whose position and table rows have to fit each other in a method of one call."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with webpte.load(folder / "tiny.pte") as program:
        expected = {job.key for job in program.planner().examples if len(job.names) > 1}
        actual = {choice.job.key for choice in program.tune()}
    assert actual == expected and any(key.startswith("attention") for key in actual)
    assert not caplog.records


def test_load_cancelled_at_any_stage(folder):
    events: list[str] = []
    stages = ("read", "compile", "upload")
    for stage in stages:
        cancel = CancelToken()

        def progress(event, stage=stage, cancel=cancel):
            events.append(event.stage)
            if event.stage == stage:
                cancel.cancel()

        with pytest.raises(webpte.CancelledError):
            LLM.load(folder / "tiny.pte", progress=progress, cancel=cancel)
    assert set(events) == set(stages)
