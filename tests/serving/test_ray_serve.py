"""Ray Serve for real: another replica for the load, one killed under it, one whose worker has failed; and their end."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import psutil  # type: ignore[import-untyped]
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.serving import alive, children_of
from tests.support.models.caller_files import write_caller
from webpte.serve import Config, deployment

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'webpte[ray]'")
serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'webpte[ray]'")
CUT = (httpx.RemoteProtocolError, openai.APIConnectionError)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field"),  # the only way to set it for one deployment
]

APPLICATION = f"test{os.getpid()}"  # a name of its own, as that of its processes
CLIENTS, REQUESTS, TEXTS = 4, 24, 6
AT_ONCE = 2  # requests of a replica
PATIENCE = 300.0  # seconds, only to end what hangs
QUICK = {"upscale_delay_s": 0, "look_back_period_s": 3, "metrics_interval_s": 1, "target_ongoing_requests": AT_ONCE}
LONG = {"max_tokens": 1900, "n": 3, "logit_bias": {}, "stream": True}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """Yield the address of a deployment that begins with one replica."""
    program = write_caller(tmp_path_factory.mktemp("served"))
    config = Config(slots=8, max_output_tokens=1900, shutdown_timeout=120, restart_timeout=5)
    application = deployment(
        program, config=config, replicas=(1, 2), autoscaling_config=QUICK, max_ongoing_requests=AT_ONCE
    )
    with socket.socket() as held:  # Ray's proxy shares the port, so no one else takes it before
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        ray.init(num_cpus=4, _system_config={"worker_niceness": 0}, **quiet)  # 15 would starve them beside other work
        try:
            serve.start(http_options={"port": port})
            serve.run(application, name=APPLICATION)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            serve.shutdown()
            ray.shutdown()


@pytest.fixture(scope="module")
def client(api):
    """Return an openai client with a longer timeout. It retries twice after a 5xx or no answer."""
    with openai.OpenAI(base_url=api, api_key="x", timeout=PATIENCE) as connection:
        tokens = httpx.post(
            f"{connection.base_url.join('/tokenize')}", json={"model": "caller", "prompt": "<|im_end|>"}
        )
        assert len(tokens.headers.get_list("x-request-id")) == 1  # Ray's proxy adds it, too
        LONG["logit_bias"] = {str(tokens.json()["tokens"][0]): -100}  # it never ends by itself
        yield connection


def asked(number: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Say hello {number}."}]
    return {"model": "caller", "messages": messages, "max_tokens": 24, "temperature": 1, "seed": number, **more}


def until(result: Callable[[], Any], what: str) -> Any:
    """Return the first result of `found()` that is not empty."""
    limit = time.monotonic() + PATIENCE
    while not (value := result()):
        assert time.monotonic() < limit, f"no {what} within {PATIENCE} seconds"
        time.sleep(0.05)
    return value


def replicas() -> dict[int, int]:
    """Processes of replicas that are ready, each with its worker."""
    status = serve.status().applications[APPLICATION].deployments["webpte"]
    named = [process.pid for process in psutil.process_iter(["cmdline"]) if is_replica(process.info["cmdline"])]
    running = {pid: children[0] for pid in named if (children := children_of(pid))}
    return running if len(running) == status.replica_states.get("RUNNING", 0) else {}


def is_replica(command: list[str] | None) -> bool:
    return bool(command and command[0].startswith(f"ray::ServeReplica:{APPLICATION}:webpte"))


def two() -> dict[int, int]:
    return running if len(running := replicas()) == 2 else {}


@pytest.mark.slow
def test_ray_serve_load_starts_second_replica(client):
    assert len(replicas()) == 1
    enough = threading.Event()

    def load() -> None:
        while not enough.is_set():
            list(client.chat.completions.create(**asked(0, **LONG | {"n": 1, "max_tokens": 400})))

    with ThreadPoolExecutor(AT_ONCE + 1) as pool:  # one of them waits
        loads = [pool.submit(load) for _ in range(AT_ONCE + 1)]
        try:
            until(two, "second replica")
        finally:
            enough.set()
        for one in loads:
            one.result()


class Client:
    """Answers by the `openai` client, which asks again by itself, but not where a stream was cut: that is ours."""

    def __init__(self, client: openai.OpenAI) -> None:
        self._client = client.chat.completions.with_raw_response
        self.retries = 0  # of the client's own
        self.cut = 0

    def whole(self, number: int) -> str:
        result = self._client.create(**asked(number % TEXTS))
        self.retries += result.retries_taken
        return result.parse().choices[0].message.content

    def streamed(self, number: int) -> str:
        had = ""
        while True:
            text = ""
            result = self._client.create(**asked(number % TEXTS, stream=True))
            self.retries += result.retries_taken
            try:
                for chunk in result.parse():
                    text += chunk.choices[0].delta.content or ""
                    if chunk.choices[0].finish_reason is not None:
                        assert text.startswith(had)
                        return text
            except CUT:
                self.cut += 1
                had = text


@pytest.mark.slow
def test_ray_serve_killed_replica_keeps_serving(client):
    result = until(two, "second replica")
    right = [client.chat.completions.create(**asked(number)).choices[0].message.content for number in range(TEXTS)]
    before = {pid: written(worker) for pid, worker in result.items()}
    witness = client.chat.completions.create(**asked(0, **LONG))
    had = "".join(itertools.islice(first_choice(witness), 100))
    for worker in result.values():  # nothing is written meanwhile
        os.kill(worker, signal.SIGSTOP)
    victim = max(result, key=lambda pid: written(result[pid]) - before[pid])
    for pid, worker in result.items():
        if pid != victim:  # whose requests are under way until it is killed
            os.kill(worker, signal.SIGCONT)
    asking, answers = Client(client), {}

    def ask(number: int) -> None:
        answers[number] = (asking.streamed if number % 2 else asking.whole)(number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        asks = [pool.submit(ask, number) for number in range(REQUESTS)]
        until(lambda: len(answers) >= CLIENTS, "answers by the other replica")
        began, done = time.monotonic(), len(answers)
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(CUT):
            had += "".join(first_choice(witness))
        for one in asks:
            one.result()
    last = time.monotonic() - began
    assert [answers[number] for number in range(REQUESTS)] == [right[number % TEXTS] for number in range(REQUESTS)]
    assert asking.retries + asking.cut >= 1
    with client.chat.completions.create(**asked(0, **LONG)) as again:
        texts = itertools.accumulate(first_choice(again))
        assert next(text for text in texts if len(text) >= len(had)).startswith(had)
    with contextlib.suppress(ProcessLookupError):  # Ray may have ended it
        os.kill(result[victim], signal.SIGCONT)
    until(lambda: not alive(result[victim]), "end of the worker whose replica was killed")
    until(lambda: victim not in two() and two(), "second replica again")
    healed = time.monotonic() - began
    print(
        f"{REQUESTS} requests, {done} answered before the kill; {asking.retries} asked again by the client, "
        f"{asking.cut} streams cut; the last answer {last:.1f} s after it, two replicas again after {healed:.1f} s"
    )


def first_choice(stream: Any) -> Iterator[str]:
    """Texts of one of its choices."""
    for chunk in stream:
        if chunk.choices and chunk.choices[0].index == 0:
            yield chunk.choices[0].delta.content or ""


def written(worker: int) -> int:
    """Return bytes written by a process, which distinguish a replica that answers from one that is only pinged."""
    return psutil.Process(worker).io_counters().write_chars


@pytest.mark.slow
def test_ray_serve_failed_worker_replaces_replica(client):
    result = until(two, "second replica")
    began = time.monotonic()
    ill = next(iter(result))

    def replaced() -> bool:
        for worker in children_of(ill):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        return not alive(ill)

    until(replaced, "end of the replica")
    assert Client(client).whole(1)
    new = until(two, "second replica")
    assert ill not in new and set(new) & set(result)
    print(f"replaced after {time.monotonic() - began:.1f} s")


@pytest.mark.slow
def test_replicas_end_with_the_answers_under_way_and_leave_no_process(client):
    result = until(two, "second replica")
    counted = asked(0, **LONG | {"n": 1}, stream_options={"include_usage": True})
    streams = [client.chat.completions.create(**counted) for _ in range(AT_ONCE)]
    for stream in streams:
        next(stream)
    serve.delete(APPLICATION, _blocking=False)
    for stream in streams:
        assert list(stream)[-1].usage.completion_tokens == LONG["max_tokens"]
    until(lambda: not any(map(alive, (*result, *result.values()))), "end of all processes")


def test_ray_serve_deployment_wrong_arguments_raise(tmp_path, monkeypatch):
    for more, code, values in (
        ({}, "no_model", [".pte"]),
        ({"replicas": 0}, None, ["replicas", "0"]),
        ({"replicas": (3, 2)}, None, ["replicas", "(3, 2)"]),
        ({"num_replicas": 2}, "conflicting_options", ["replicas"]),
        ({"autoscaling_config": {}}, "conflicting_options", ["replicas"]),
        ({"config": Config(host="0.0.0.0", allow_unauthenticated=True)}, None, ["host", "ray.serve.start"]),
        ({"max_ongoing_requests": -1}, "deployment", ["max_ongoing"]),
        ({"no_such_option": 1}, "deployment", ["no_such_option"]),
    ):
        models = () if code == "no_model" else ("model.pte",)
        with raises(webpte.InputError, *values, code=code):
            deployment(*models, **more)
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    monkeypatch.delattr(ray, "serve")
    with raises(webpte.UnsupportedError, "pip install 'webpte[ray,server]'"):
        deployment("model.pte")
