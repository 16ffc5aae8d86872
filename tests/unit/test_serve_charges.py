"""Every route charges a client before it works for it: the bytes of its body, its threads, its media."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.stand_in import Asked, StandIn, StandInCompiler
from tests.support.models.tokenizers import byte_level
from webpte.serve import images
from webpte.serve.accounts import RequestClock
from webpte.serve.application import ROUTES, app
from webpte.serve.config import Config
from webpte.serve.messages import ModelInfo, Transcribed
from webpte.serve.openai import audio

KINDS = ("encoder", "reranker", "speech")
WITH_BODY = [route for route in ROUTES if route.body is not None]
FORM = {"content-type": "multipart/form-data; boundary=b"}
USER = {"messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": USER, "/v1/completions": {"prompt": "hi"}, "/v1/responses": {"input": "hi"},
    "/v1/messages": {**USER, "max_tokens": 2}, "/v1/messages/count_tokens": USER, "/api/chat": USER,
    "/api/generate": {"prompt": "hi"}, "/tokenize": {"prompt": "hi"}, "/detokenize": {"tokens": [1]},
    "/api/show": {"model": "stand-in"}, "/api/pull": {"model": "stand-in"},
}  # fmt: skip


class Unread(Asked):
    """A request that announces a body, whose first part is sent when it is read."""

    received = 0

    async def _receive(self) -> dict[str, Any]:
        self.received += 1
        return await super()._receive()


def recording(data: bytes = b"RIFF") -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + data + b"\r\n--b--\r\n"


@pytest.fixture
def serving(tmp_path, monkeypatch):
    """Runs `check(backend, application)` with models of all kinds, or of some."""
    monkeypatch.setattr("webpte.serve.served_models.SchemaCompiler", StandInCompiler)
    for name in ("TextTokenizer.load", "read_pairs"):
        monkeypatch.setattr(f"webpte.serve.served_models.{name}", lambda path: None)

    def run(check: Callable[[StandIn, Any], Awaitable[Any]], kinds: tuple[str, ...] = KINDS, **options: Any) -> Any:
        async def whole() -> Any:
            backend = StandIn(tmp_path, byte_level())
            for kind in kinds:
                backend.models[kind] = ModelInfo(kind, "", kind, 16, 0, 4, 4, "f", 1, rate=16000)  # type: ignore[arg-type]
            if "language" not in kinds and kinds != KINDS:
                del backend.models["stand-in"]
            application = app(backend, Config(**options))
            async with application.router.lifespan_context(application):
                return await check(backend, application)

        return asyncio.run(whole())

    return run


def headers_of(path: str, **more: str) -> dict[str, str]:
    return {**(FORM if "/audio/" in path else {}), **more}


@pytest.mark.parametrize("path", [route.path for route in WITH_BODY])
def test_body_beyond_the_bytes_of_a_client_is_refused_before_it_is_read(serving, path):
    async def check(backend: StandIn, application: Any) -> tuple[int, int, str]:
        request = Unread(application, path, b"x", headers_of(path, **{"content-length": "2000"}))
        response = await request.answer()
        return response.status, request.received, response.body.decode()

    status, received, body = serving(check, max_client_bytes=1999)
    assert (status, received) == (429, 0) and "1999" in body


@pytest.mark.parametrize("path", [route.path for route in WITH_BODY])
def test_body_whose_announced_length_exceeds_its_limit_is_refused_before_it_is_read(serving, path):
    async def check(backend: StandIn, application: Any) -> tuple[int, int]:
        request = Unread(application, path, b"x", headers_of(path, **{"content-length": str(100 << 20)}))
        return (await request.answer()).status, request.received

    assert serving(check) == (413, 0)


@pytest.mark.parametrize("path", [route.path for route in WITH_BODY if route.body is not None and route.body.kind])
def test_body_for_a_kind_of_model_that_is_not_served_is_refused_before_it_is_read(serving, path):
    kind = next(route.body.kind for route in WITH_BODY if route.path == path and route.body is not None)

    async def check(backend: StandIn, application: Any) -> tuple[int, int]:
        request = Unread(application, path, b"x", headers_of(path))
        return (await request.answer()).status, request.received

    others = ("speech",) if kind != "speech" else ("encoder",)
    assert serving(check, others) == (400, 0)


@pytest.mark.parametrize("path", BODIES)
def test_answered_request_has_charged_threads_and_bytes_and_gives_the_bytes_back(serving, path):
    seen: list[int] = []

    async def check(backend: StandIn, application: Any) -> Any:
        accounts = application.state.service.accounts
        take = accounts.take_bytes

        def counted(client: str, amount: int) -> None:
            seen.append(amount)
            take(client, amount)

        accounts.take_bytes = counted
        response = await Asked(application, path, BODIES[path]).answer()
        assert response.status == 200, response.body
        return accounts

    accounts = serving(check)
    assert sum(seen) >= 10 and accounts.totals["thread_seconds"] > 0
    assert not accounts.totals["bytes"] and not accounts.totals["requests"]


def test_chunks_of_a_body_without_a_length_are_charged_as_they_arrive(serving):
    async def check(backend: StandIn, application: Any) -> int:
        return (await Asked(application, "/tokenize", b" " * 3000).answer()).status

    assert serving(check, max_client_bytes=1024) == 429 and serving(check, max_client_bytes=4096) == 400


def test_recordings_are_decoded_when_the_model_is_next_and_their_samples_removed(serving, monkeypatch, tmp_path):
    """Each decoded recording takes up to 230 MB of disk; uploads are small."""
    decoded: list[Path] = []

    async def decode(source: Path, target: Path, *_: Any) -> None:
        assert source.read_bytes() == b"RIFF"
        target.write_bytes(bytes(4000))
        decoded.append(target)

    monkeypatch.setattr(audio, "decode_audio", decode)

    async def check(backend: StandIn, application: Any) -> tuple[int, int, list[int], int]:
        go = asyncio.Event()

        async def transcribe(*_: Any, **__: Any) -> Transcribed:
            await go.wait()
            return Transcribed(1, "text", "en", 1.0, ())

        backend.transcribe = transcribe  # type: ignore[method-assign]
        service = application.state.service
        addresses = ["127.0.0.1"] * 4 + ["127.0.0.2"] * 4
        asked = [Asked(application, "/v1/audio/transcriptions", recording(), FORM, each) for each in addresses]
        async with asyncio.timeout(30):
            while len(service.recordings) < 6:
                await asyncio.sleep(0.01)
        at_once, held = len(decoded), service.accounts.totals["media_bytes"]
        go.set()
        statuses = [(await each.answer()).status for each in asked]
        return at_once, held, statuses, service.accounts.totals["media_bytes"]

    assert serving(check) == (2, 8000, [200] * 8, 0)
    assert len(decoded) == 8 and not any(path.exists() for path in decoded)


def test_decoded_media_beyond_the_limit_is_refused(serving, monkeypatch):
    async def decode(source: Path, target: Path, *_: Any) -> None:
        target.write_bytes(bytes(4000))

    monkeypatch.setattr(audio, "decode_audio", decode)

    async def check(backend: StandIn, application: Any) -> tuple[int, str]:
        response = await Asked(application, "/v1/audio/transcriptions", recording(), FORM).answer()
        return response.status, response.body.decode()

    status, body = serving(check, max_media_bytes=7998)
    assert status == 429 and "max_media_bytes" in body


class Decoders:
    """Stands in for the processes that decode and download: each image takes a while, and is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, downloading: asyncio.Event | None = None) -> None:
        self.order: list[str] = []
        self.downloading = downloading
        monkeypatch.setattr(images, "prepare_images", self.prepare)
        monkeypatch.setattr(images, "download_images", self.download)

    async def prepare(self, sources: Any, folder: Path, *_: Any) -> Any:
        await asyncio.sleep(0.005)
        self.order.append(sources[0]["argument"])
        path = Path(sources[0]["path"]).with_suffix(".pixels")
        path.write_bytes(b"pixels")
        return [{"text": "", "path": str(path), "tiles": []}]  # one of them: the turn has ended

    async def download(self, sources: Any, *_: Any) -> None:
        assert self.downloading is not None
        await self.downloading.wait()


def prepared(application: Any, client: str, uploads: list[images.ImageUpload], folder: Path) -> Any:
    from contextlib import ExitStack
    from types import SimpleNamespace

    folder.mkdir()
    state = {"client": client, "held": ExitStack(), "clock": RequestClock(60.0, 60.0)}
    request: Any = SimpleNamespace(app=application, scope={"state": state})
    return asyncio.ensure_future(images._prepare(request, None, uploads, folder))  # type: ignore[arg-type]


def test_image_of_one_client_waits_for_one_image_of_others_not_for_their_requests(serving, monkeypatch, tmp_path):
    decoders = Decoders(monkeypatch)

    async def check(backend: StandIn, application: Any) -> int:
        service = application.state.service
        for client in "abcd":  # have used much lately, and leave a decoder free
            service.accounts.charge(client, "decoding_seconds", 60.0)
        many = [
            prepared(application, client, [images.ImageUpload(f"{client}{n}") for n in range(8)], tmp_path / client)
            for client in "abcd"
        ]
        async with asyncio.timeout(30):
            while len(decoders.order) < 4:
                await asyncio.sleep(0.001)
        before = len(decoders.order)
        await prepared(application, "e", [images.ImageUpload("e")], tmp_path / "e")
        between = decoders.order.index("e") - before
        await asyncio.gather(*many)
        return between

    assert serving(check) <= 4 and sorted(decoders.order) == sorted(
        [f"{c}{n}" for c in "abcd" for n in range(8)] + ["e"]
    )


def test_slow_downloads_keep_no_decoder(serving, monkeypatch, tmp_path):
    async def check(backend: StandIn, application: Any) -> None:
        go = asyncio.Event()
        Decoders(monkeypatch, go)
        slow = [
            prepared(application, f"s{n}", [images.ImageUpload("x", address="http://a/")], tmp_path / f"s{n}")
            for n in range(6)
        ]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            await prepared(application, "e", [images.ImageUpload("e")], tmp_path / "e")
        assert not any(each.done() for each in slow)
        go.set()
        await asyncio.gather(*slow)

    serving(check)


def test_waits_of_a_request_share_one_deadline(serving, monkeypatch):
    """A request waited for its model, a decoder, a helper and a slot, each with a limit of its own."""
    seen: list[Any] = []
    holds: list[float] = []

    async def check(backend: StandIn, application: Any) -> int:
        generate, hold = backend.generate, backend.hold

        def timed(*arguments: Any, timeouts: Any = None, **more: Any) -> Any:
            seen.append(timeouts)
            return generate(*arguments, **more)

        async def slow(name: str, keep_alive: float | None, client: str, timeout: float) -> ModelInfo:
            holds.append(timeout)
            await asyncio.sleep(0.2)
            return await hold(name)

        backend.generate, backend.hold = timed, slow  # type: ignore[method-assign, assignment]
        return (await Asked(application, "/v1/completions", {"prompt": "hi"}).answer()).status

    assert serving(check, request_timeout=50.0, queue_timeout=60.0, ttft_timeout=120.0) == 200
    (timeouts,), (hold,) = seen, holds
    assert hold <= 50 and timeouts.total <= hold - 0.2
    assert timeouts.queue <= hold - 0.2 and timeouts.first_token <= hold - 0.2
