"""States that do not hold every position: a sequence that rewinds beyond the window is computed again."""

from __future__ import annotations

import hashlib

import pytest

from tests.support.harness.fake_runner import FakeLLM, ForgetfulRunner, alone
from webpte.llm.engine.embeddings import EncoderInput
from webpte.llm.engine.kv_slots import LAST_TOKEN_ONLY, MIN_SAVED_TOKENS, CacheWindow, Slot

WINDOW = 6
RING = CacheWindow(WINDOW, WINDOW + 16)
TEXT = [(7 * i + 3) % 97 for i in range(40)]


def model(window, **options):
    return FakeLLM(ForgetfulRunner(window, **options))


def computed(llm):
    """Rows since the last time."""
    rows = sum(len(rows) for rows in llm.runner.passes)
    llm.runner.passes.clear()
    return rows


@pytest.mark.parametrize(("count", "usable"), [(20, 20), (19, 12), (12, 12), (11, 5), (4, 0)])
def test_slot_continues_from_the_latest_checkpoint_that_is_not_after_the_tokens(count, usable):
    slot = Slot(0, LAST_TOKEN_ONLY)
    slot.before_write(20)
    slot.tokens += TEXT[:20]
    slot.checkpoints = {5: 0, 12: 1}
    assert slot.usable(count) == usable


@pytest.mark.parametrize(
    ("window", "count", "usable"),
    [
        (None, 5, 5),
        (CacheWindow(6, 22), 40, 40),
        (CacheWindow(6, 22), 24, 24),  # positions 18 to 23 are needed, and 18 is the first that is held
        (CacheWindow(6, 22), 23, 0),
        (CacheWindow(6, 22), 0, 0),
        (LAST_TOKEN_ONLY, 40, 40),
        (LAST_TOKEN_ONLY, 39, 0),
    ],
)
def test_cache_window_limits_usable_tokens(window, count, usable):
    slot = Slot(0, window)
    slot.before_write(40)
    slot.tokens += TEXT
    assert slot.usable(count) == usable


def test_cache_window_shorter_text_is_fully_usable():
    slot = Slot(0, RING)
    slot.before_write(RING.held)
    slot.tokens += TEXT[: RING.held]
    assert [slot.usable(count) for count in range(RING.held)] == list(range(RING.held))
    slot.before_write(1)
    assert slot.usable(WINDOW) == 0 and slot.usable(WINDOW + 1) == WINDOW + 1


def test_cache_window_rewind_does_not_restore_overwritten_rows():
    slot = Slot(0, RING)
    slot.before_write(40)
    slot.tokens += TEXT
    slot.truncate(30)
    slot.before_write(1)
    assert slot.usable(24) == 24 and slot.usable(23) == 0  # 24 to 39 stand where the positions before were
    slot.clear()
    slot.before_write(20)
    assert slot.usable(1) == 1  # from the beginning it is a new text


@pytest.mark.parametrize(("window", "back", "rows"), [(RING, 10, 1), (RING, 30, 10), (LAST_TOKEN_ONLY, 1, 39)])
def test_cache_window_rewound_sequence_recomputes_needed_tokens(window, back, rows):
    llm = model(window)
    talk = llm.sequence()
    talk.logits(TEXT)
    computed(llm)
    talk.rewind(back)
    rest = TEXT[: len(TEXT) - back]
    assert (talk.logits([9]) == model(window).sequence().logits([*rest, 9])).all()
    assert computed(llm) == (1 if rows == 1 else len(rest) + 1)


@pytest.mark.parametrize("window", [RING, LAST_TOKEN_ONLY])
def test_cache_window_fork_prefix_snapshot_equal_fresh(window, tmp_path):
    llm = model(window)
    talk = llm.sequence()
    first = talk.generate(tokens=TEXT[:30], max_new_tokens=10)
    assert (first.result(), first.tokens)[1] == alone(TEXT[:30], 10)
    for length in (35, 12, 3):  # further on, and before what is held
        other = llm.generate(tokens=[*TEXT[:30], *first.tokens][:length], max_new_tokens=5)
        assert (other.result(), other.tokens)[1] == alone([*TEXT[:30], *first.tokens][:length], 5)
    twin = talk.fork()
    assert (twin.logits([5]) == model(window).sequence().logits([*talk.tokens, 5])).all()
    talk.rewind(1)
    talk.snapshot(tmp_path / "talk")
    twin.restore(tmp_path / "talk")
    assert (twin.logits([8]) == model(window).sequence().logits([*talk.tokens, 8])).all()
    twin.rewind(20)
    assert (twin.logits([8]) == model(window).sequence().logits([*twin.tokens[:-1], 8])).all()


@pytest.mark.parametrize("window", [RING, LAST_TOKEN_ONLY])
def test_cache_window_interrupted_step_is_not_reused(window):
    llm = model(window)
    talk = llm.sequence()
    talk.logits(TEXT[:30])

    def interrupt():
        llm.runner.after = lambda: None
        raise KeyboardInterrupt

    llm.runner.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        talk.logits(TEXT[30:35])
    assert talk.tokens == tuple(TEXT[:30])
    computed(llm)
    assert (talk.logits([4]) == model(window).sequence().logits([*TEXT[:30], 4])).all()
    assert computed(llm) == (1 if window == RING else 31)


@pytest.mark.parametrize("window", [RING, LAST_TOKEN_ONLY])
def test_cache_window_interrupted_step_other_response_exact(window):
    llm = model(window)
    prompts = [TEXT[:30], TEXT[5:35]]
    answer, other = (llm.generate(tokens=prompt, max_new_tokens=20, tokens_per_submit=1) for prompt in prompts)
    for _ in zip(range(5), answer, other, strict=False):
        pass

    def interrupt():
        llm.runner.after = lambda: None
        raise KeyboardInterrupt

    llm.runner.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        answer.result()
    other.result()
    assert other.tokens == alone(prompts[1], 20)


TURN = 20  # tokens of a prompt that a checkpoint is worth


def kept(window, **options):
    return model(window, num_checkpoints=options.pop("num_checkpoints", 4), capacity=200, **options)


@pytest.mark.parametrize("window", [RING, LAST_TOKEN_ONLY])
def test_checkpoint_of_a_prompt_computes_what_follows_alone(window):
    llm = kept(window)
    llm.generate(tokens=TEXT, max_new_tokens=24, tokens_per_submit=1).result()
    computed(llm)
    other = [*TEXT, 5, 6, 7]  # another continuation of the prompt
    answer = llm.generate(tokens=other, max_new_tokens=3, tokens_per_submit=1)
    answer.result()
    assert answer.tokens == alone(other, 3, 200) and answer.usage.reused_tokens == len(TEXT)
    assert computed(llm) == 3 + 2


def test_checkpoint_of_rewound_sequence_restores_its_prompt():
    llm = kept(LAST_TOKEN_ONLY)
    talk = llm.sequence()
    talk.logits(TEXT[:TURN])
    talk.logits(TEXT[TURN : TURN + 9])
    computed(llm)
    talk.rewind(4)
    fresh = kept(LAST_TOKEN_ONLY).sequence()
    assert (talk.logits([9]) == fresh.logits([*TEXT[: TURN + 5], 9])).all()
    assert computed(llm) == 6  # after the first call's tokens


def test_checkpoint_of_a_shared_prefix_serves_the_third_prompt():
    llm = kept(LAST_TOKEN_ONLY, max_slots=2)
    reused = []
    for number in range(4):
        prompt = [*TEXT, *[number + 1] * TURN]
        answer = llm.generate(tokens=prompt, max_new_tokens=2)
        answer.result()
        assert answer.tokens == alone(prompt, 2, 200)
        reused.append(answer.usage.reused_tokens)
    assert reused == [0, 0, len(TEXT), len(TEXT)]  # the second computes it, and stops where it branches off


def test_checkpoint_of_a_shared_prefix_is_computed_once_for_prompts_at_once():
    llm = kept(LAST_TOKEN_ONLY)
    prompts = [[*TEXT, *[number + 1] * TURN] for number in range(4)]
    answers = list(llm.generate_many([{"tokens": prompt} for prompt in prompts], max_new_tokens=2))
    assert [answer.tokens for answer in answers] == [alone(prompt, 2, 200) for prompt in prompts]
    assert computed(llm) == len(TEXT) + 4 * (TURN + 1)


def picture(*rows, **kind):
    return EncoderInput(hashlib.sha256(bytes(rows)).digest()[:16], len(rows), lambda: rows, **kind)


def seeing(**options):
    llm = kept(LAST_TOKEN_ONLY, **options)
    llm.runner.embedding_blocks, llm.runner.embedding_rows = 8, TURN
    return llm


@pytest.mark.parametrize("before", [0, 1, MIN_SAVED_TOKENS - TURN + 30])
def test_checkpoint_of_an_image_serves_another_first_question(before):
    llm, shown = seeing(), picture(*range(TURN))
    texts = [[*TEXT[:before], *range(TURN), *question] for question in ([5, 6, 7], [8, 9])]
    for prompt, expected in zip(texts, (before + TURN + 3, 2), strict=True):
        segments = [*TEXT[:before], shown, *prompt[before + TURN :]]
        computed(llm)
        answer = llm.generate(tokens=segments, max_new_tokens=1)
        answer.result()
        assert answer.tokens == alone(prompt, 1, 200)
        assert computed(llm) == expected


def test_checkpoints_of_images_are_as_far_apart_as_others_and_tiles_have_none():
    llm = seeing(num_checkpoints=8)
    tile = picture(*range(TURN), ends_image=False)
    near = picture(*range(MIN_SAVED_TOKENS - 2))
    llm.generate(
        tokens=[tile, 1, picture(*TEXT[:TURN]), 2, near, 3, picture(*TEXT[-TURN:]), 4], max_new_tokens=1
    ).result()
    (slot,) = (slot for slot in llm.engine.kv_slots._slots if slot.tokens)
    first = 2 * TURN + 1
    assert [*slot.checkpoints] == [first, first + 1 + MIN_SAVED_TOKENS - 2 + 1 + TURN]
    assert slot.next_stop is None


@pytest.mark.parametrize("turns", [20])
def test_checkpoints_of_a_chat_compute_the_new_tokens_of_each_turn(turns):
    """Each turn repeats the conversation, but not the thought before the last answer."""
    llm = model(LAST_TOKEN_ONLY, num_checkpoints=2, capacity=2000)
    llm.runner.max_draft_tokens = 0  # as with a state that cannot go back
    history, rows = list(TEXT), []
    for turn in range(turns):
        prompt = [*history, *[turn + 1] * TURN]
        computed(llm)
        answer = llm.generate(tokens=prompt, max_new_tokens=12, tokens_per_submit=1)
        answer.result()
        rows.append(computed(llm))
        history = [*prompt, *answer.tokens[6:]]
    assert rows[0] == len(TEXT) + TURN + 11
    assert set(rows[1:]) == {6 + TURN + 11}  # the answer without the thought, the question and the new answer


@pytest.mark.parametrize("total", [1, 3])
def test_checkpoints_beyond_the_room_replace_the_least_recently_used(total):
    llm = kept(LAST_TOKEN_ONLY, max_slots=4, num_checkpoints=total)
    prompts = [[number + 1] * TURN for number in range(4)]
    talks = [llm.sequence() for _ in prompts]
    for talk, prompt in zip(talks, prompts, strict=True):
        talk.logits(prompt)
        talk.logits([1, 2, 3])
    assert set(llm.runner.saved) == set(range(total))
    slots = llm.engine.kv_slots
    counts = [slots.lookup_prefix([*prompt, 90], (0, ""))[1] for prompt in prompts]
    assert counts == [0] * (4 - total) + [TURN] * total


def test_checkpoint_survives_no_lost_device():
    llm = kept(LAST_TOKEN_ONLY)
    llm.generate(tokens=TEXT, max_new_tokens=4).result()
    llm.runner.lose()
    llm.recover()
    answer = llm.generate(tokens=[*TEXT, 5], max_new_tokens=4)
    answer.result()
    assert answer.tokens == alone([*TEXT, 5], 4, 200) and answer.usage.reused_tokens == 0


@pytest.mark.parametrize("window", [RING, LAST_TOKEN_ONLY])
def test_rejected_drafts_compute_few_tokens_again(window):
    """Text in circles is drafted. What is drafted after a circle ends is wrong, and computed from a checkpoint."""
    llm = kept(window)
    llm.runner.recalls = 1
    prompt = [*TEXT, *TEXT[:20]]
    answer = llm.generate(tokens=prompt, max_new_tokens=100, speculate=True)
    answer.result()
    assert answer.tokens == alone(prompt, 100, 200, recalls=1)
    drafting = [len(rows) for rows in llm.runner.passes if len(rows) > 1]
    assert len(llm.runner.passes) < 80 and len(drafting) > 10
    # A ring holds what the tokens before the drafts need: the only copy is that of the prompt's end.
    assert set(llm.runner.saved) == ({0} if window == RING else {0, 1})


def test_tokens_after_a_stop_in_a_submit_cost_few_in_the_next_turn():
    llm = kept(LAST_TOKEN_ONLY)
    whole = alone(TEXT, 60, 200)
    end = next(at for at in range(45, 60) if at % 8 == 4 and whole[at] not in whole[:at])
    llm.stop_tokens = frozenset([whole[end]])
    first = llm.generate(tokens=TEXT, max_new_tokens=60, tokens_per_submit=8, speculate=False)
    first.result()
    assert first.tokens == whole[: end + 1]
    computed(llm)
    prompt = [*TEXT, *first.tokens, 7, 8, 9]
    answer = llm.generate(tokens=prompt, max_new_tokens=1)
    answer.result()
    assert answer.usage.reused_tokens >= len(TEXT) + end - 16 - 8
    assert computed(llm) <= 3 + 1 + 16 + 8 and answer.tokens == alone(prompt, 1, 200)


def test_drafts_need_a_checkpoint_of_the_sequence():
    llm = kept(LAST_TOKEN_ONLY, num_checkpoints=2)
    llm.runner.recalls = 2
    talks = [llm.sequence() for _ in range(3)]
    for number, talk in enumerate(talks):
        talk.logits([number + 1] * TURN)
    slots = llm.engine.kv_slots
    assert all(slots.can_draft(slot) for slot in slots._slots if slot.tokens)
    for talk in talks:
        talk.logits([9] * 2 * TURN)
    assert [slots.can_draft(slot) for slot in slots._slots if slot.tokens] == [False, True, True]
