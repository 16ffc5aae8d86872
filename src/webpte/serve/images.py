"""The images of a request: collected by the endpoints, prepared by another process, and named in messages by a file."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.requests import Request

from ..llm.engine.embeddings import EncoderInput, Segment
from ..llm.image_prompts import ImageEncoder, ImagePrompts, PreparedImage
from ..llm.prompts import TemplateContent
from .clients import client_of, clock_of, until_disconnect
from .config import Config
from .errors import ApiError
from .media_process import ImageFile, StoredImage, download_images, prepare_images
from .messages import PromptItem, StoredTile
from .served_models import ServedModel
from .service import Service

TURN_SECONDS = 1.0  # after which the images of another client may be decoded first
ADDRESS_START = 40  # characters of an address in an error


@dataclass(frozen=True)
class ImageUpload:
    """An image of a request: base64, or an address."""

    param: str  # where it is in the body
    base64: str = ""
    address: str | None = None

    @classmethod
    def from_address(cls, param: str, address: str) -> ImageUpload:
        """Return the image at an address, or in a data address."""
        if not address.startswith("data:"):
            return cls(param, address=address)
        head, _, data = address.partition(",")
        if not head.endswith(";base64"):
            raise ApiError(400, f"{param}: expected base64 after data:image/…;base64, got {head!r:.60}", param=param)
        return cls(param, data)


@dataclass(frozen=True, eq=False)
class StoredInput(EncoderInput):
    """A tile whose pixels are in a file, for the worker to read."""

    path: str
    offset: int
    shape: tuple[int, ...]


async def read_images(request: Request, model: ServedModel, uploads: Sequence[ImageUpload]) -> list[PreparedImage]:
    """Return the images of a request as parts of a prompt. Their files exist until the request ends."""
    service: Service = request.app.state.service
    if not uploads:
        return []
    encoder = _check(uploads, model, service.config).encoder
    folder = Path(request.scope["state"]["held"].enter_context(TemporaryDirectory(prefix="webpte-")))
    request.scope["state"]["log"]["images"] = len(uploads)
    return await until_disconnect(request.receive, _prepare(request, encoder, uploads, folder))


def _check(uploads: Sequence[ImageUpload], model: ServedModel, config: Config) -> ImagePrompts:
    """Return what puts images into the prompts of a model. Raise ApiError 400 if it does not take these."""
    param, images, limit = uploads[0].param, model.text.images, model.text.context_limit
    if images is None:
        raise ApiError(400, f"{param}: {model.name} reads no images. Send text.", param=param, code="no_images")
    if len(uploads) > config.max_images:
        raise ApiError(
            400, f"images: expected at most {config.max_images} (max_images), got {len(uploads)}", param=param,
            code="too_many_images",
        )  # fmt: skip
    if len(uploads) * images.min_rows >= limit.tokens:
        raise limit.error(len(uploads) * images.min_rows)
    if not config.allow_remote_images:
        for each in uploads:
            if each.address is not None:
                raise ApiError(
                    400, f"{each.param}: expected an address that begins with data:image/, got "
                    f"{each.address[:ADDRESS_START]!r}. The server downloads no images (allow_remote_images).",
                    param=each.param, code="image_address",
                )  # fmt: skip
    return images


async def _prepare(
    request: Request, encoder: ImageEncoder, uploads: Sequence[ImageUpload], folder: Path
) -> list[PreparedImage]:
    """Download and decode the images of a request. Between two of them, another client may be next."""
    service: Service = request.app.state.service
    config, client, clock = service.config, client_of(request), clock_of(request)
    async with service.threads.slot(client):
        sources = await asyncio.to_thread(_write, uploads, folder)
    if any(source["address"] is not None for source in sources):
        async with service.image_downloads.slot(client, clock=clock):
            await download_images(sources, config.max_image_bytes, config.image_timeout)
    stored: list[StoredImage] = []
    left = config.image_timeout
    while len(stored) < len(sources):
        async with service.decoders.slot(client, clock=clock):
            began = time.monotonic()
            stored += await prepare_images(
                sources[len(stored) :],
                folder,
                encoder,
                config.max_image_pixels,
                max(left, 0.001),
                TURN_SECONDS,
            )
            left -= time.monotonic() - began
    held: contextlib.ExitStack = request.scope["state"]["held"]
    service.accounts.hold_media(held, client, sum(Path(each["path"]).stat().st_size for each in stored))
    return [_prepared(each) for each in stored]


def _write(uploads: Sequence[ImageUpload], folder: Path) -> list[ImageFile]:
    """Write the base64 of images into files."""
    sources: list[ImageFile] = []
    for number, upload in enumerate(uploads):
        path = folder / f"{number}.base64"
        if upload.address is None:
            path.write_bytes(upload.base64.encode("utf-8", "replace"))
        sources.append({"argument": upload.param, "address": upload.address, "path": str(path)})
    return sources


def _prepared(image: StoredImage) -> PreparedImage:
    inputs = [
        StoredInput(
            bytes.fromhex(tile["digest"]), tile["rows"], _read_by_the_worker,
            image["path"], tile["offset"], tuple(tile["shape"]), ends_image=tile is image["tiles"][-1],
        )
        for tile in image["tiles"]
    ]  # fmt: skip
    return PreparedImage(image["text"], inputs)


def _read_by_the_worker() -> tuple[Any, ...]:
    raise AssertionError("the server encodes no images")


def template_content(parts: Iterable[str | PreparedImage]) -> TemplateContent:
    """Return texts and images as the content of a message: one string if there are no images."""
    listed = list(parts)
    texts = [each for each in listed if isinstance(each, str)]
    if len(texts) == len(listed):
        return "".join(texts)
    return [
        {"type": "text", "text": each} if isinstance(each, str) else {"type": "image", "image": each} for each in listed
    ]


def prompt_items(segments: Iterable[Segment]) -> tuple[PromptItem, ...]:
    """Return a prompt as messages to the worker contain it."""
    return tuple(
        StoredTile(each.digest.hex(), each.rows, each.path, each.offset, each.shape, each.ends_image)
        if isinstance(each, StoredInput)
        else each
        for each in segments
        if not isinstance(each, EncoderInput) or isinstance(each, StoredInput)
    )
