"""Images in requests of four APIs without a worker: their limits, addresses and files, and the process that decodes."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.stand_in import Asked, StandIn
from tests.support.models.tiny_vlm import PROCESSOR, ROWS, SIDE, SPECIAL, TEMPLATE, VOCABULARY, picture, write_files
from tests.support.models.tokenizers import byte_level
from webpte.errors import InputError
from webpte.llm.image_processor import image_processor
from webpte.llm.image_prompts import ImageEncoder, ImagePrompts, ImageSource, content_digest
from webpte.llm.tokenizer import Tokenizer
from webpte.serve.application import app
from webpte.serve.bodies import check_size_without_images
from webpte.serve.config import Config
from webpte.serve.errors import ApiError
from webpte.serve.media_process import prepare_images
from webpte.serve.messages import ModelInfo, StoredTile, TextFiles, prompt_length
from webpte.serve.remote_images import fetch, is_public

CHARACTERS = "what is it?"
TILES = 5  # of 40 x 56 pixels: two by two, and the overview
IMAGE_URL = "data:image/png;base64,"


def png(seed: int = 1, height: int = 40, width: int = 56) -> bytes:
    file = io.BytesIO()
    picture(seed, height, width).save(file, "PNG")
    return file.getvalue()


def encoded(data: bytes | None = None) -> str:
    return base64.b64encode(png() if data is None else data).decode()


@pytest.fixture(scope="module")
def model_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sees")
    write_files(folder, SPECIAL, PROCESSOR)
    return folder


def encoder(folder: Path) -> ImageEncoder:
    return ImageEncoder(str(folder / "preprocessor_config.json"), ((1, 3, SIDE, SIDE),), ROWS)


@pytest.fixture
def ask(tmp_path, model_files):
    """Return a function that sends a request to a server of one model that sees, and what its backend got."""

    def run(path: str, body: Any, sees: bool = True, **options: Any) -> tuple[Asked, StandIn]:
        async def whole() -> tuple[Asked, StandIn]:
            backend = StandIn(tmp_path, byte_level())
            tokenizer = str(model_files / "tokenizer.json")
            files = TextFiles(tokenizer, None, TEMPLATE, (), None, (), {}, encoder(model_files) if sees else None)
            backend.models = {"eye": ModelInfo("eye", "", "language", 200, VOCABULARY, 0, 4, "f", 1, files)}
            application = app(backend, Config(**options))
            async with application.router.lifespan_context(application):
                return await Asked(application, path, body).answer(), backend

        return asyncio.run(whole())

    return run


def chat(url: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}, {"type": "text", "text": CHARACTERS}]
    return {"messages": [{"role": "user", "content": parts}]}


def anthropic(source: dict[str, str]) -> dict[str, Any]:
    parts = [{"type": "image", "source": source}, {"type": "text", "text": CHARACTERS}]
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": 4}


def requests(data: str) -> dict[str, dict[str, Any]]:
    """Return one question about one image for each path."""
    responses = [{"type": "input_image", "image_url": IMAGE_URL + data}, {"type": "input_text", "text": CHARACTERS}]
    return {
        "/v1/chat/completions": chat(IMAGE_URL + data),
        "/v1/responses": {"input": [{"role": "user", "content": responses}]},
        "/v1/messages": anthropic({"type": "base64", "media_type": "image/png", "data": data}),
        "/api/chat": {"messages": [{"role": "user", "content": CHARACTERS, "images": [data]}], "stream": False},
        "/api/generate": {"prompt": CHARACTERS, "images": [data], "stream": False},
    }


@pytest.fixture(scope="module")
def expected(model_files):
    """Return the prompt of the question, with the digest of each tile in its place."""
    tokenizer = Tokenizer.load(str(model_files / "tokenizer.json"))
    prompts = ImagePrompts(encoder(model_files), tokenizer)
    prepared = prompts.prepare(ImageSource("image", picture(1)))
    text = prompts.expanded(f"User:<image>{CHARACTERS}<end_of_utterance>\nAssistant:", [prepared])
    segments = prompts.segments(tokenizer.encode(text, parse_special=True), [prepared])
    return [each if isinstance(each, int) else each.digest.hex() for each in segments]


@pytest.mark.parametrize("path", requests(""))
def test_image_of_every_api_is_the_prompt_of_python(ask, expected, path):
    response, backend = ask(path, requests(encoded())[path])
    assert response.status == 200, response.body
    (stream,) = backend.streams
    assert [each.digest if isinstance(each, StoredTile) else each for each in stream.prompt] == expected
    tiles = [each for each in stream.prompt if isinstance(each, StoredTile)]
    size = 3 * SIDE * SIDE
    assert [each.offset for each in tiles] == [number * size for number in range(TILES)]
    assert {(each.rows, each.shape) for each in tiles} == {(ROWS, (3, SIDE, SIDE))}
    assert [each.ends_image for each in tiles] == [False] * (TILES - 1) + [True]
    assert prompt_length(stream.prompt) == len(expected) + TILES * (ROWS - 1)
    assert not Path(tiles[0].path).exists()  # the request has ended


def test_count_of_tokens_contains_the_rows_of_images(ask, expected):
    body = anthropic({"type": "base64", "media_type": "image/png", "data": encoded()})
    del body["max_tokens"]
    response, _ = ask("/v1/messages/count_tokens", body)
    assert response.json == {"input_tokens": len(expected) + TILES * (ROWS - 1)}


def test_models_say_whether_they_see(ask):
    assert [ask("/v1/models", None, sees)[0].json["data"][0]["images"] for sees in (True, False)] == [True, False]
    assert "vision" in ask("/api/show", {"model": "eye"})[0].json["capabilities"]


WRONG: dict[str, tuple[dict[str, Any], int, str | None, str]] = {
    "no base64": (chat(IMAGE_URL + "?"), 400, None, "messages[0].content[0]"),
    "no image": (chat(IMAGE_URL + encoded(b"GIF89a")), 400, None, "messages[0].content[0]"),
    "no data": (chat("data:image/png,x"), 400, None, "messages[0].content[0]"),
    "remote": (chat("https://example.com/a.png"), 400, "image_address", "allow_remote_images"),
    "file": (chat("file:///etc/passwd"), 400, "image_address", "allow_remote_images"),
    "two": ({"messages": chat(IMAGE_URL)["messages"] * 2}, 400, "too_many_images", "max_images"),
    "pixels": (chat(IMAGE_URL + encoded(png(1, 50, 60))), 400, None, "2500"),
    "bytes": (chat(IMAGE_URL + "A" * 14_000), 413, "body_too_large", "max_image_bytes"),
    "text": ({"messages": [{"role": "user", "content": "a b " * 1800}]}, 413, "body_too_large", "max_body_bytes"),
    "assistant": ({"messages": [{**chat(IMAGE_URL)["messages"][0], "role": "assistant"}]}, 400, None, "content[0]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_image_is_refused_and_named(ask, name):
    body, status, code, words = WRONG[name]
    limits = {"max_images": 1, "max_image_pixels": 2500, "max_image_bytes": 14_000, "max_body_bytes": 7000}
    response, backend = ask("/v1/chat/completions", body, **limits)
    assert response.status == status and not backend.streams, response.body
    error = response.json["error"]
    assert words in error["message"] and code in (None, error["code"])


@pytest.mark.parametrize("path", requests(""))
def test_image_for_a_model_that_does_not_see_is_refused(ask, path):
    response, _ = ask(path, requests(encoded())[path], sees=False)
    assert response.status == 400 and "eye reads no images" in response.body.decode()


def test_image_that_exceeds_the_context_is_refused_before_it_is_decoded(ask):
    body = {"messages": [{"role": "user", "content": [chat(IMAGE_URL)["messages"][0]["content"][0]] * 50}]}
    response, _ = ask("/v1/chat/completions", body, max_images=50)
    assert response.json["error"]["code"] == "context_length_exceeded" and "200" in response.body.decode()


def test_images_do_not_count_as_text_of_a_body():
    image = json.dumps({"url": IMAGE_URL + "A" * 5000, "data": "B" * 3000}).encode()
    check_size_without_images(image, 100)
    for body in (image + b" " * 100, b'"' * 101, b"[1," * 2000, b'"' + b"a b" * 600 + b'"', b'"' + b"A" * 999 + b'"'):
        with pytest.raises(ApiError, match="max_body_bytes"):
            check_size_without_images(body, 100)


# -- the process that decodes -----------------------------------------------------------------------------------------


def prepared(folder: Path, data: bytes, timeout: float = 60, max_pixels: int = 1 << 20) -> Any:
    (folder / "image").write_bytes(base64.b64encode(data))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    image: Any = {"argument": "here", "address": None, "path": str(folder / "image")}
    return asyncio.run(prepare_images([image], folder, encoder(folder), max_pixels, timeout))


def test_prepared_image_has_the_tiles_of_the_processor(tmp_path):
    (image,) = prepared(tmp_path, png())
    tiles = image_processor("config", PROCESSOR)(picture(1))
    assert np.array_equal(np.fromfile(image["path"], np.uint8), np.stack(tiles.pixels).ravel())
    assert [bytes.fromhex(each["digest"]) for each in image["tiles"]] == [*map(content_digest, tiles.pixels)]


def bomb(width: int, height: int) -> bytes:
    """Return a PNG of some kilobytes that is decoded to width x height pixels of one color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # RGBA
    compress = zlib.compressobj(9)
    rows = b"".join(compress.compress(bytes(4 * width + 1)) for _ in range(height)) + compress.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_decompression_bombs_end_as_typed_errors(tmp_path, monkeypatch):
    with raises(InputError, 1 << 20, code="image_size"):
        prepared(tmp_path, bomb(2000, 2000))
    with pytest.raises(ApiError, match="image_timeout"):
        prepared(tmp_path, bomb(1000, 1000), timeout=0.01)
    monkeypatch.setattr("webpte.serve.media_process.BASE_BYTES", 1 << 20)
    monkeypatch.setattr("webpte.serve.media_process.BYTES_PER_PIXEL", 1)
    with pytest.raises((InputError, ApiError), match=r"[Mm]emory"):
        prepared(tmp_path, bomb(4000, 2000), max_pixels=1 << 23)


# -- addresses --------------------------------------------------------------------------------------------------------

PRIVATE = """
127.0.0.1 127.9.9.9 0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 100.100.100.200
168.63.129.16 198.18.0.1 192.0.2.1 224.0.0.1 240.0.0.1 255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 fc00::1
fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 2002:7f00:1:: 64:ff9b::7f00:1 2001:0:7f00:1::
2001:db8::1 ::127.0.0.1 ::ffff:0:127.0.0.1 ::ffff:0:0:127.0.0.1 64:ff9b:1::7f00:1 2001:470::5efe:7f00:1
2a00::200:5efe:7f00:1 fec0::1 5f00::1 3fff::1 3ffe::1 4000::1 100::1 2620:4f:8000::1 192.0.0.192 192.0.0.9 192.0.0.1
192.88.99.1 192.31.196.1 192.175.48.1 203.0.113.5 198.51.100.5 0.1.2.3 255.0.0.1 2001:20::1 2001:30::1 2001:1::1
"""


def test_addresses_outside_the_public_internet_are_refused():
    assert [address for address in PRIVATE.split() if is_public(address)] == []
    assert all(
        map(
            is_public,
            ("8.8.8.8", "1.1.1.1", "192.0.1.1", "198.20.0.1", "2606:4700:4700::1111", "2a00:1450::1", "2001:4860::1"),
        )
    )


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:1/a", "http://localhost:1/", "http://[::1]/", "http://2130706433/", "http://0x7f.1/a"],
)
def test_loopback_in_any_spelling_is_refused_before_a_connection(address):
    with raises(InputError, "here", code="private_address"):
        fetch(address, 100, "here")


@pytest.mark.parametrize("address", ["ftp://8.8.8.8/", "http:///a", "http://user@8.8.8.8/", "file:///etc/passwd"])
def test_address_of_another_kind_is_refused(address):
    with raises(InputError, "here", code="image_address"):
        fetch(address, 100, "here")


@pytest.fixture
def site():
    """Yield the port of a server on the loopback that serves an image, and redirects."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/to/"):
                self.send_response(302)
                self.send_header("Location", self.path.removeprefix("/to/"))
            else:
                self.send_response(404 if self.path == "/missing" else 200)
            self.end_headers()
            self.wfile.write(b"image" * 4)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_download_checks_every_redirect_the_size_and_the_status(site):
    base = f"http://127.0.0.1:{site}"

    def allowed(address: str) -> bool:
        return address == "127.0.0.1"

    assert fetch(f"{base}/a?b=c", 20, "here", allowed) == b"image" * 4
    assert fetch(f"{base}/to//a", 20, "here", allowed) == b"image" * 4
    for path, code in {
        f"/to/http://127.0.0.2:{site}/a": "private_address",
        "/to/file:///etc/passwd": "image_address",
        "/to//to//to//to//a": "image_download",
        "/missing": "image_download",
    }.items():
        with raises(InputError, "here", code=code):
            fetch(base + path, 20, "here", allowed)
    with raises(InputError, 19, code="image_bytes"):
        fetch(f"{base}/a", 19, "here", allowed)


def test_remote_address_is_downloaded_only_from_public_hosts(ask):
    response, backend = ask("/v1/chat/completions", chat("http://127.0.0.1:9/a.png"), allow_remote_images=True)
    assert response.status == 400 and not backend.streams
    assert "messages[0].content[0]" in response.body.decode() and "public" in response.body.decode()
