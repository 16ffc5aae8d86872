"""How long clients wait for a first token after a long prompt that is known, and for vectors of texts, beside the same
in Python: see `python -m tests.serving waits`."""

from __future__ import annotations

import statistics
import time

import httpx

from tests.support.harness.serving import Running, event_in
from tests.support.models.named import SENTENCES
from webpte.embed import Embedder

LONG = 300  # tokens of a system prompt
TEXTS = 64
WARM = 24  # requests, by which a server has made the slots it will have: each time it grows one waits for it
CACHE = 256 << 20  # bytes
WORDS = "Answer briefly, politely and truthfully; say so where you do not know. "


def show(path: str, encoder: str, rounds: int) -> int:
    """Prints both; 1 if a known prompt was computed again."""
    arguments = (f"m={path}", f"e={encoder}", "--prefix-cache-bytes", CACHE, "--log-level", "warning")
    with Running(*arguments) as running, httpx.Client(base_url=running.url, timeout=600) as client:
        wrong = show_first_tokens(client, rounds)
        with Embedder.load(encoder) as embedder:
            show_vectors(client, embedder, rounds)
    return wrong


def show_first_tokens(client: httpx.Client, rounds: int) -> int:
    known = _system(client, "known")
    for number in range(WARM):
        first_token(client, known, f"Hello {number}.")
    new, cached, computed_again = [], [], 0
    for turn in range(rounds):
        new.append(first_token(client, _system(client, f"new {turn}"), f"What is {turn} and {turn}?")[0])
        seconds, result = first_token(client, known, f"What is {turn} and {turn}?")
        cached.append(seconds)
        computed_again += result < LONG // 2
    ratio = statistics.median(cached) / statistics.median(new)
    print(f"first token behind {LONG} tokens: {statistics.median(new):.3f} s, known {statistics.median(cached):.3f} s")
    print(f"that is {ratio:.3f} x; {computed_again} of {rounds} were not found in the cache", flush=True)
    return int(computed_again > 0)


def _system(client: httpx.Client, name: str) -> str:
    """Return a system prompt of that many tokens that differs from the first one on."""
    text = f"{name}: " + WORDS * (LONG // 10)
    response = client.post("/tokenize", json={"model": "m", "prompt": text}).json()["tokens"]
    cut = client.post("/detokenize", json={"model": "m", "tokens": response[:LONG]}).json()
    return str(cut["prompt"])


def first_token(client: httpx.Client, system: str, text: str) -> tuple[float, int]:
    """Seconds until it comes, and how many tokens of the prompt were known."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    body = {"model": "m", "messages": messages, "max_tokens": 2, "temperature": 0, "stream": True}
    body["stream_options"] = {"include_usage": True}
    started, first, known = time.monotonic(), 0.0, 0
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if (event := event_in(line)) is not None:
                if not first and any(choice["delta"].get("content") for choice in event["choices"]):
                    first = time.monotonic() - started
                if event.get("usage"):
                    known = event["usage"]["prompt_tokens_details"]["cached_tokens"]
    return first, known


def show_vectors(client: httpx.Client, embedder: Embedder, rounds: int) -> None:
    texts = [f"{number}. {SENTENCES[number % len(SENTENCES)]}" for number in range(TEXTS)]
    here, there = [], []
    for _ in range(rounds + 1):
        started = time.monotonic()
        embedder(texts)
        here.append(time.monotonic() - started)
        started = time.monotonic()
        client.post(
            "/v1/embeddings", json={"model": "e", "input": texts, "encoding_format": "base64"}
        ).raise_for_status()
        there.append(time.monotonic() - started)
    python, http = statistics.median(here[1:]), statistics.median(there[1:])  # the first ones compile
    print(f"{TEXTS} texts: {python:.3f} s in Python, {http:.3f} s by HTTP ({http / python:.3f} x)")
