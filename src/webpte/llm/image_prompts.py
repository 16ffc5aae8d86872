"""Images in the messages of a chat: taken out of the messages, prepared, and put into the prompt."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import FormatError, InputError
from ..image_files import open_image
from ..typing import Array
from .engine.embeddings import DIGEST_BYTES, EncoderInput, Segment
from .image_processor import ImageProcessor, read_image_processor

if TYPE_CHECKING:  # the process that decodes images imports neither
    from .prompts import Messages
    from .tokenizer import Tokenizer

IMAGE_TYPES = ("image", "image_url")  # of a part of a message's content
SOURCES = ("path", "url", "image", "image_url")  # fields of a part with an image; the last as OpenAI has it
MAX_IMAGE_BYTES = 64 << 20  # of a file as bytes or as a data address


class ImageSource(NamedTuple):
    """An image of a message, not opened yet."""

    argument: str  # its name in errors
    value: Any  # a path, bytes, an array, a PIL image or a PreparedImage


class PreparedImage(NamedTuple):
    """An image as a part of a prompt."""

    text: str  # with one image token for each input
    inputs: Sequence[EncoderInput]


def has_images(messages: Messages) -> bool:
    """Return whether a message has a part with an image."""
    return any(_is_image(part) for message in messages for part in _parts(message))


def separate_images(messages: Messages) -> tuple[Messages, list[ImageSource]]:
    """Return the messages as templates of models that see read them, and their images in order.

    Every content becomes a list of parts. A part with an image keeps only its type, "image".
    """
    sources: list[ImageSource] = []
    separated = []
    for number, message in enumerate(messages):
        parts: list[Any] = []
        for position, part in enumerate(_parts(message)):
            if _is_image(part):
                argument = f"messages[{number}].content[{position}]"
                sources.append(ImageSource(argument, _source_of(part, argument)))
                parts.append({"type": "image"})
            else:
                parts.append(part)
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, str):
            parts = [{"type": "text", "text": content}]
        separated.append({**message, "content": parts} if parts else message)
    return separated, sources


def _parts(message: Any) -> Sequence[Any]:
    content = message.get("content") if isinstance(message, Mapping) else None
    return content if isinstance(content, (list, tuple)) else ()


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in IMAGE_TYPES


def _source_of(part: Mapping[str, Any], argument: str) -> Any:
    values = {name: part[name] for name in SOURCES if part.get(name) is not None}
    if len(values) != 1:
        raise InputError(
            argument=argument,
            expected=f"an image as one of {', '.join(SOURCES)}",
            got=", ".join(values) or "none",
            code="image_source",
        )
    ((name, value),) = values.items()
    if name == "image_url" and isinstance(value, Mapping):
        value = value.get("url")
    if name in ("url", "image_url"):
        return _from_address(value, argument)
    if isinstance(value, bytes) and len(value) > MAX_IMAGE_BYTES:
        raise _too_long(argument, len(value))
    return value


def _from_address(address: Any, argument: str) -> bytes:
    """Return the bytes in a data address."""
    head, comma, data = address.partition(",") if isinstance(address, str) else ("", "", "")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        raise InputError(
            argument=argument,
            expected="an address that begins with data:image/ and contains base64",
            got=repr(address)[:60],
            code="image_address",
            hint="Download the image first.",
        )
    if len(data) // 4 * 3 > MAX_IMAGE_BYTES:
        raise _too_long(argument, len(data) // 4 * 3)
    return bytes_of_base64(data, argument)


def bytes_of_base64(data: str | bytes, argument: str) -> bytes:
    """Return the bytes that base64 stands for."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{argument}: not valid base64: {error}", code="image_address") from error


def _too_long(argument: str, got: int) -> InputError:
    return InputError(argument=argument, expected=f"at most {MAX_IMAGE_BYTES} bytes", got=got, code="image_bytes")


@dataclass(frozen=True)
class ImageEncoder:
    """What images are prepared for."""

    config: str  # the path of preprocessor_config.json
    inputs: tuple[tuple[int, ...], ...]  # the dims of the encoder's inputs at most
    max_rows: int  # of a tile in the decoder's input
    bidirectional: bool = False  # the rows of a tile see each other

    def processor(self) -> ImageProcessor:
        """Return what prepares images. Raise FormatError unless it fits the encoder."""
        return read_image_processor(Path(self.config)).for_encoder(self.config, self.inputs)


class ImagePrompts:
    """Puts images into prompts: an image becomes text, with rows of embeddings for each of its tiles."""

    def __init__(self, encoder: ImageEncoder, tokenizer: Tokenizer) -> None:
        self.encoder = encoder
        self.processor = encoder.processor()
        self.min_rows = self.processor.min_rows(encoder.max_rows)  # of an image
        token = tokenizer.token_id(self.processor.image_token)
        if token is None:
            raise FormatError(f"the tokenizer has no token {self.processor.image_token}", code="image_token")
        self._token = token

    def prepare(self, source: ImageSource) -> PreparedImage:
        """Return an image as a part of a prompt."""
        if isinstance(source.value, PreparedImage):
            return source.value
        tiles = self.processor(open_image(source.value, source.argument))
        last = len(tiles.pixels) - 1
        inputs = [
            self.input(
                pixels,
                content_digest(pixels),
                self.processor.rows(pixels, self.encoder.max_rows),
                ends_image=number == last,
            )
            for number, pixels in enumerate(tiles.pixels)
        ]
        return PreparedImage(self.processor.text(tiles), inputs)

    def input(self, pixels: Array, digest: bytes, rows: int, *, ends_image: bool) -> EncoderInput:
        """Return the encoder's input for a tile. `ends_image` is true for the last one of an image."""
        arguments = functools.partial(self.processor.arguments, pixels)
        columns = self.processor.columns(pixels)
        sees = self.encoder.bidirectional
        return EncoderInput(digest, rows, arguments, columns=columns, ends_image=ends_image, bidirectional=sees)

    def expanded(self, text: str, images: Sequence[PreparedImage]) -> str:
        """Return a rendered chat with the text of each image in the place of its token."""
        pieces = text.split(self.processor.placeholder)
        if len(pieces) != len(images) + 1:
            raise InputError(
                argument="messages",
                expected=f"a chat template that renders {len(images)} images",
                got=f"{len(pieces) - 1} places for images",
                code="image_count",
            )
        texts = [*(image.text for image in images), ""]
        return "".join(piece + text for piece, text in zip(pieces, texts, strict=True))

    def segments(self, tokens: Sequence[int], images: Sequence[PreparedImage]) -> list[Segment]:
        """Return the tokens of an expanded chat, with the rows of a tile for each image token."""
        inputs = [each for image in images for each in image.inputs]
        if tokens.count(self._token) != len(inputs):
            raise FormatError(
                f"the tokenizer splits the text of {len(inputs)} tiles into other tokens than {self._token}",
                code="image_token",
            )
        following = iter(inputs)
        return [next(following) if token == self._token else token for token in tokens]


def content_digest(pixels: Array) -> bytes:
    """Return the digest of a tile."""
    return hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()[:DIGEST_BYTES]
