"""Six models on a device that fits two: real workers, random requests of several clients, and the limit of memory."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.harness.serving import Running
from tests.support.models.caller_files import write_caller
from tests.support.models.rerankers import exported_reranker
from tests.support.models.task_checkpoints import exported

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

CLIENTS = 8
REQUESTS = 500
TEXTS = ["the cat sat", "dogs run", "a mat"]
NUM_ASKS = 6  # different requests for each model


class Outcome(NamedTuple):
    """What the requests of a run have shown."""

    seconds: list[float]  # of each request
    loads: int
    most_bytes: int  # of all models together, sampled
    limit: int


def served(folder: Path) -> list[str]:
    """Return six models as arguments: three language models, two encoders and a reranker."""
    languages = [f"{name}={write_caller(folder, name)}" for name in ("one", "two", "three")]
    encoders = [f"bert={exported('bert') / 'model.pte'}", f"again={exported('bert') / 'model.pte'}"]
    return [*languages, *encoders, f"ranker={exported_reranker('bert') / 'model.pte'}"]


def ask(client: httpx.Client, model: str, number: int) -> Any:
    """Return the answer to one of the requests for a model."""
    if model in ("bert", "again"):
        response = client.post("/v1/embeddings", json={"model": model, "input": TEXTS[: 1 + number % 3]})
        key = "data"
    elif model == "ranker":
        response = client.post("/v1/rerank", json={"model": model, "query": TEXTS[number % 3], "documents": TEXTS})
        key = "results"
    else:
        body = {"model": model, "prompt": f"{number} {model}", "max_tokens": 4 + number, "temperature": 0}
        response = client.post("/v1/completions", json=body)
        key = "choices"
    assert response.status_code == 200, response.text
    return response.json()[key]


def taken(client: httpx.Client) -> dict[str, int]:
    return {model["name"]: model["size_vram"] for model in client.get("/api/ps").json()["models"]}


def run_requests(folder: Path, requests: int) -> Outcome:
    models = served(folder)
    names = [model.partition("=")[0] for model in models]
    patience = ("--queue-timeout", 600, "--ttft-timeout", 600, "--load-timeout", 3000)
    with Running(*models, *patience) as running, httpx.Client(base_url=running.url, timeout=3000) as client:
        expected = {(name, number): ask(client, name, number) for name in names for number in range(NUM_ASKS)}
        time.sleep(2)  # workers report their memory each second
        sizes = sorted(taken(client).values())
    assert len(sizes) == len(models) and sizes[0] > 0
    limit = sum(sizes[-2:])
    chance = random.Random(3)
    asks = [(chance.choice(names), chance.randrange(NUM_ASKS)) for _ in range(requests)]
    with Running(*models, *patience, "--memory-bytes", limit) as running:
        ended = threading.Event()
        most = 0

        def watch() -> None:
            nonlocal most
            with httpx.Client(base_url=running.url, timeout=60) as client:
                while not ended.wait(0.1):
                    most = max(most, sum(taken(client).values()))

        def timed(one: tuple[str, int]) -> float:
            started = time.monotonic()
            with httpx.Client(base_url=running.url, timeout=3000) as client:
                assert ask(client, *one) == expected[one]
            return time.monotonic() - started

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            with ThreadPoolExecutor(CLIENTS) as pool:
                seconds = list(pool.map(timed, asks))
        finally:
            ended.set()
            watching.join()
        loads = sum('"event": "loading", "model":' in line for line in running.lines)
    return Outcome(seconds, loads, most, limit)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    yield run_requests(tmp_path_factory.mktemp("fleet"), REQUESTS)


@pytest.mark.timeout(7200)
def test_random_requests_for_six_models_are_right_within_the_memory_of_two(outcome):
    median, *_, late = statistics.quantiles(outcome.seconds, n=20)[9:]
    print(f"{REQUESTS} requests, {outcome.loads} loads; median {median:.1f} s, 95% {late:.1f} s, ", end="")
    print(f"longest {max(outcome.seconds):.1f} s")
    assert len(outcome.seconds) == REQUESTS and outcome.loads >= 6
    assert 0 < outcome.most_bytes <= outcome.limit
