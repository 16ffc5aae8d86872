"""States that do not hold every position: a sequence that rewinds beyond the window is computed again."""

from __future__ import annotations

import pytest

from tests.support.harness.fake_runner import FakeLLM, ForgetfulRunner, alone
from webpte.llm.engine.kv_slots import LAST_TOKEN_ONLY, CacheWindow, Slot

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
