"""Images in conversations as clients send them: the answers of Python, alone and among others."""

from __future__ import annotations

import base64
import io
import itertools
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import ollama
import openai
import pytest

from tests.support.harness.serving import Running
from tests.support.models import example_models
from tests.support.models.tiny_vlm import picture
from webpte.llm import LLM

QUESTION = "what is it?"
TOKENS = 8
SETTINGS: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 0}
GAP_ROUNDS = 5
SEEDS = (None, 1, 2, None, 1, 3, 4, None)  # of the images of eight requests; None for none


@pytest.fixture(scope="module")
def program():
    return example_models.vlm() / "vlm.pte"


@pytest.fixture(scope="module")
def served(program):
    with Running(program) as server:
        yield server


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=served.api, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def answers(program):
    """Return what Python answers about each image."""
    texts = {}
    with LLM.load(program) as llm:
        for seed in set(SEEDS):
            llm.reset_prefix_cache()
            parts: list[dict[str, Any]] = [] if seed is None else [{"type": "image", "image": picture(seed)}]
            messages = [{"role": "user", "content": [*parts, {"type": "text", "text": QUESTION}]}]
            answer = llm.generate(messages, max_new_tokens=TOKENS, temperature=0)
            texts[seed] = str(answer), answer.usage.prompt_tokens
    return texts


def encoded(seed: int, width: int = 56) -> str:
    file = io.BytesIO()
    picture(seed, width=width).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def messages(seed: int | None) -> list[Any]:
    text = {"type": "text", "text": QUESTION}
    if seed is None:
        return [{"role": "user", "content": QUESTION}]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(seed)}"}}
    return [{"role": "user", "content": [image, text]}]


def ask(client: openai.OpenAI, seed: int | None) -> tuple[str, int]:
    answer = client.chat.completions.create(model="vlm", messages=messages(seed), **SETTINGS)
    return answer.choices[0].message.content, answer.usage.prompt_tokens


def test_requests_with_and_without_images_at_once_have_the_answers_of_each_alone(client, answers):
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        together = list(pool.map(lambda seed: ask(client, seed), SEEDS))
    assert together == [answers[seed] for seed in SEEDS]


def test_second_question_about_an_image_finds_its_rows(client):
    ask(client, 5)
    content = [*messages(5)[0]["content"][:1], {"type": "text", "text": "where is it?"}]
    answer = client.chat.completions.create(model="vlm", messages=[{"role": "user", "content": content}], **SETTINGS)
    computed = answer.usage.prompt_tokens - answer.usage.prompt_tokens_details.cached_tokens
    assert computed <= len("ere is it?") + len("\nAssistant:") + 1


def test_image_through_the_package_of_ollama_has_the_same_answer(served, answers):
    turn = ollama.Message(role="user", content=QUESTION, images=[ollama.Image(value=base64.b64decode(encoded(1)))])
    options = {"num_predict": TOKENS, "temperature": 0}
    local = ollama.Client(served.url, timeout=240)
    whole = local.chat("vlm", [turn], options=options)
    assert (whole.message.content, whole.prompt_eval_count) == answers[1]
    parts = local.chat("vlm", [turn], options=options, stream=True)
    assert "".join(part.message.content or "" for part in parts) == answers[1][0]


def test_image_through_the_package_of_anthropic_has_the_same_answer(served, answers):
    source: Any = {"type": "base64", "media_type": "image/png", "data": encoded(1)}
    content: Any = [{"type": "image", "source": source}, {"type": "text", "text": QUESTION}]
    asked: Any = {"model": "vlm", "messages": [{"role": "user", "content": content}], "max_tokens": TOKENS}
    asked["extra_body"] = {"temperature": 0}
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=240) as client:
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_text()
        counted = client.messages.count_tokens(model="vlm", messages=asked["messages"])
    (block,) = whole.content
    assert block.type == "text" and block.text == streamed == answers[1][0]
    assert counted.input_tokens == answers[1][1]


def test_client_of_openai_learns_that_an_image_is_wrong(client):
    with pytest.raises(openai.BadRequestError, match="content"):
        url = {"url": "data:image/png;base64,AAAA"}
        content: Any = [{"type": "image_url", "image_url": url}]
        client.chat.completions.create(model="vlm", messages=[{"role": "user", "content": content}])


@pytest.mark.slow
def test_stream_goes_on_beside_eight_images(client):
    """The longest gap of a stream while images are decoded and encoded is shorter than a second, in the median."""

    def longest_gap() -> float:
        stream = client.chat.completions.create(
            model="vlm", messages=messages(None), max_tokens=150, temperature=0, stream=True
        )
        times = [time.monotonic() for _ in stream]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def beside_images(seeds: range) -> float:
        with ThreadPoolExecutor(len(seeds) + 1) as pool:
            streaming = pool.submit(longest_gap)
            list(pool.map(lambda seed: ask(client, seed), seeds))
            return streaming.result()

    beside_images(range(92, 100))  # compiles the kernels
    alone, beside = [], []
    for first in range(100, 100 + 8 * GAP_ROUNDS, 8):  # no image is encoded twice
        alone.append(longest_gap())
        beside.append(beside_images(range(first, first + 8)))
    for name, gaps in (("alone", alone), ("beside eight images", beside)):
        low, middle, high = (1000 * value for value in (min(gaps), statistics.median(gaps), max(gaps)))
        print(f"longest gap {name}: median {middle:.0f} ms ({low:.0f}-{high:.0f} ms, n = {len(gaps)})")
    assert statistics.median(beside) < 1
