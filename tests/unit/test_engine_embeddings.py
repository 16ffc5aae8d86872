"""Prompts with rows of embeddings: the tokens are those of a prompt with the same contents, and little is encoded."""

from __future__ import annotations

import hashlib
import itertools

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone
from webpte.errors import InputError, UnsupportedError
from webpte.llm.engine.embeddings import EncoderInput

IMAGES = [(71, 72, 73), (81, 82, 83), (91, 92, 93)]
TEXT = list(range(1, 9))


def image(rows: tuple[int, ...], bidirectional: bool = False) -> EncoderInput:
    digest = hashlib.sha256(bytes(rows)).digest()[:16]
    return EncoderInput(digest, len(rows), lambda: rows, bidirectional=bidirectional)


def whole(number: int) -> EncoderInput:
    """Return an image whose rows see each other."""
    return image(IMAGES[number], bidirectional=True)


def runner(blocks: int = 4, **options: int) -> FakeRunner:
    fake = FakeRunner(**options)
    fake.embedding_blocks = blocks
    return fake


def ask(llm, prompt, count=12):
    return llm.generate(tokens=prompt, max_new_tokens=count, tokens_per_submit=1)


def tokens_of(answer):
    answer.result()
    return answer.tokens


@pytest.mark.parametrize("max_batch_tokens", [1, 2, 4, 16])
def test_engine_chunks_that_cut_images_have_the_tokens_of_their_contents(max_batch_tokens):
    llm = FakeLLM(runner(max_batch_tokens=max_batch_tokens))
    first, second, third = map(image, IMAGES)
    prompt = [*TEXT, first, 20, second, third]
    answer = ask(llm, prompt)
    assert tokens_of(answer) == alone([*TEXT, *IMAGES[0], 20, *IMAGES[1], *IMAGES[2]], 12)
    assert answer.usage.prompt_tokens == 18 and llm.runner.encoded == IMAGES


def images_of_passes(fake: FakeRunner) -> list[list[tuple[int, int]]]:
    """Return the rows of images in each pass that has some: position, and later rows that it sees."""
    passes = [[(row.position, row.later) for row in tokens if row.token < 0] for tokens in fake.passes]
    return [rows for rows in passes if rows]


@pytest.mark.parametrize("max_batch_tokens", [3, 4, 5, 16])
def test_engine_rows_that_see_each_other_are_in_one_step(max_batch_tokens):
    llm = FakeLLM(runner(max_batch_tokens=max_batch_tokens))
    prompt = [*TEXT, whole(0), 20, whole(1), whole(2)]
    assert tokens_of(ask(llm, prompt)) == alone([*TEXT, *IMAGES[0], 20, *IMAGES[1], *IMAGES[2]], 12)
    rows = [row for rows in images_of_passes(llm.runner) for row in rows]
    assert rows == [(first + n, 2 - n) for first in (8, 12, 15) for n in range(3)]
    assert all(len(rows) % 3 == 0 for rows in images_of_passes(llm.runner))
    assert max(map(len, llm.runner.passes)) <= max_batch_tokens


@pytest.mark.parametrize("max_batch_tokens", [3, 4, 16])
def test_engine_rows_that_see_each_other_beside_decoding_requests(max_batch_tokens):
    """Without space beside them, the decoding request waits for the image. It decodes in every other step."""
    llm = FakeLLM(runner(max_batch_tokens=max_batch_tokens))
    decoding = ask(llm, TEXT, 24)
    next(decoding)
    asked = ask(llm, [5, whole(0), whole(1), 9])
    asked.start()
    assert tokens_of(decoding) == alone(TEXT, 24)
    assert tokens_of(asked) == alone([5, *IMAGES[0], *IMAGES[1], 9], 12)
    assert [len(rows) for rows in images_of_passes(llm.runner)] == [3, 3]
    assert max(map(len, llm.runner.passes)) <= max_batch_tokens


def test_engine_prompt_that_ends_in_a_cached_image_computes_all_of_it():
    llm = FakeLLM(runner())
    for reused in (0, 8, 8):
        answer = ask(llm, [*TEXT, whole(0)])
        assert tokens_of(answer) == alone([*TEXT, *IMAGES[0]], 12) and answer.usage.reused_tokens == reused
    assert tokens_of(ask(llm, [*TEXT, whole(0), 30])) == alone([*TEXT, *IMAGES[0], 30], 12)
    assert [row for row in images_of_passes(llm.runner)[-1]] == [(8, 2), (9, 1), (10, 0)]


@pytest.mark.parametrize(("count", "left"), [(0, 11), (1, 8), (2, 8), (3, 8), (4, 7)])
def test_sequence_rewind_into_an_image_goes_to_its_beginning(count, left):
    llm = FakeLLM(runner())
    talk = llm.sequence()
    tokens_of(talk.generate(tokens=[*TEXT, whole(0), 4], max_new_tokens=1))
    talk.rewind(1)
    talk.rewind(count)
    assert talk.position == left


def test_engine_prompts_with_and_without_images_side_by_side():
    llm = FakeLLM(runner(max_slots=8))
    prompts = [[*TEXT[:n], *([image(IMAGES[n % 3])] if n % 2 else []), 40 + n] for n in range(8)]
    contents = [[*TEXT[:n], *(IMAGES[n % 3] if n % 2 else ()), 40 + n] for n in range(8)]
    answers = [ask(llm, prompt) for prompt in prompts]
    for _ in zip(*answers, strict=True):
        pass
    assert [answer.tokens for answer in answers] == [alone(content, 12) for content in contents]
    assert sorted(llm.runner.encoded) == IMAGES  # each once, for all requests


def test_engine_second_question_about_an_image_computes_only_its_own_tokens():
    llm = FakeLLM(runner())
    prompt = [*TEXT, image(IMAGES[0])]
    assert tokens_of(ask(llm, [*prompt, 30])) == alone([*TEXT, *IMAGES[0], 30], 12)
    again = ask(llm, [*TEXT, image(IMAGES[0]), 31])
    assert tokens_of(again) == alone([*TEXT, *IMAGES[0], 31], 12)
    assert again.usage.reused_tokens == 11 and llm.runner.encoded == IMAGES[:1]
    other = ask(llm, [*TEXT, image(IMAGES[1]), 31])
    assert tokens_of(other) == alone([*TEXT, *IMAGES[1], 31], 12) and other.usage.reused_tokens == 8


def test_engine_full_pool_replaces_the_least_recently_used():
    llm = FakeLLM(runner(blocks=2, max_slots=1))
    for rows in (0, 1, 0, 2, 0, 1):
        assert tokens_of(ask(llm, [5, image(IMAGES[rows])])) == alone([5, *IMAGES[rows]], 12)
    assert llm.runner.encoded == [IMAGES[0], IMAGES[1], IMAGES[2], IMAGES[1]]


def test_engine_more_images_than_blocks_are_read_in_several_steps():
    llm = FakeLLM(runner(blocks=1))
    assert tokens_of(ask(llm, [*map(image, IMAGES)])) == alone([row for rows in IMAGES for row in rows], 12)


def test_engine_encodes_one_image_between_two_steps_of_decoding_requests():
    llm = FakeLLM(runner())
    decoding = ask(llm, TEXT, 24)
    next(decoding)
    asked = ask(llm, [*map(image, IMAGES), 9])
    asked.start()
    start = len(llm.runner.passes)
    assert tokens_of(decoding) == alone(TEXT, 24)
    during = llm.runner.passes[start:]
    assert llm.runner.encoded == IMAGES
    assert all(before or after for before, after in itertools.pairwise(during))  # never two in a row
    assert tokens_of(asked) == alone([*IMAGES[0], *IMAGES[1], *IMAGES[2], 9], 12)


def test_engine_lost_device_encodes_again():
    llm = FakeLLM(runner(), recover=True)
    answer = ask(llm, [*TEXT, image(IMAGES[0]), 7])
    next(answer)
    llm.runner.lost = True
    assert tokens_of(answer) == alone([*TEXT, *IMAGES[0], 7], 12)
    assert llm.runner.encoded == IMAGES[:1] * 2


def test_engine_encoder_that_fails_fails_its_request_alone():
    llm = FakeLLM(runner())

    def broken() -> tuple[int, ...]:
        raise InputError("broken")

    failing = llm.generate(tokens=[1, EncoderInput(bytes(16), 3, broken)], max_new_tokens=4)
    other = ask(llm, TEXT)
    other.start()
    with pytest.raises(InputError, match="broken"):
        failing.result()
    assert tokens_of(other) == alone(TEXT, 12)


def test_sequence_with_images_continues_forks_and_refuses_snapshots(tmp_path):
    llm = FakeLLM(runner())
    talk = llm.sequence()
    tokens_of(talk.generate(tokens=[*TEXT, image(IMAGES[0])], max_new_tokens=3))
    fork = talk.fork()
    llm.reset_prefix_cache()
    llm.engine.kv_slots.invalidate()
    llm.engine.embeddings.invalidate()
    assert (fork.logits([4]) == talk.logits([4])).all() and llm.runner.encoded == IMAGES[:1] * 2
    with raises(UnsupportedError, code="snapshot_images"):
        talk.snapshot(tmp_path / "state")


def test_prompt_with_other_encoder_inputs_is_refused():
    with raises(InputError, "tokens only", "3 rows", code="encoder_input"):
        FakeLLM().generate(tokens=[1, image(IMAGES[0])])
    with raises(InputError, "1 to 3 rows", "4 rows", code="encoder_input"):
        FakeLLM(runner()).generate(tokens=[1, image((1, 2, 3, 4))])
