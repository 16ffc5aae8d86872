"""Audio and images of clients, decoded in a process that has a memory limit and can be killed.

The decoders are libraries in C. A file that makes one crash, or take all memory, ends this process only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from ..errors import Error, InputError, error_of
from ..llm.image_prompts import ImageEncoder
from .errors import ApiError, unavailable
from .processes import end_after, ignore_stop_signals, leave_network, limit_memory, mute_libraries, spawn

COMMAND = (sys.executable, "-m", "webpte.serve.media_process")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # a process with several cannot leave the network
SYSTEM_ERROR = "OSError"  # of a process: the system, not the file, is to blame
BYTES_PER_SAMPLE = 64  # that decoding and resampling take: copies in f32 and f64, at 48,000 samples per second
BYTES_PER_PIXEL = 24  # that decoding, turning and converting take: up to six copies of four bytes
BASE_BYTES = 512 << 20
ORPHAN_SECONDS = 1.0  # after the timeout, when a process whose server has died ends by itself


class ImageFile(TypedDict):
    """An image to prepare: its name in errors, and the path of its base64. If it is at the address of another server,
    the path is that of its bytes."""

    argument: str
    address: str | None
    path: str


class PreparedTile(TypedDict):
    """A tile of an image that was prepared."""

    digest: str
    rows: int  # in the decoder's input
    offset: int  # of its pixels in the file of the image
    shape: list[int]


class StoredImage(TypedDict):
    """An image that was prepared."""

    text: str  # in a prompt
    path: str  # of a file with the pixels of its tiles
    tiles: list[PreparedTile]


class _Job(NamedTuple):
    """What a process decodes, and its limits."""

    kind: str  # of the functions in `_DECODERS`
    arguments: Mapping[str, Any]
    memory_bytes: int
    timeout: float
    option: str  # that sets the timeout
    param: str  # of the request


async def decode_audio(source: Path, target: Path, rate: int, max_seconds: float, timeout: float) -> None:
    """Write the samples of a file as little-endian f32 at `rate`. Raise what is wrong with the file."""
    arguments = {"source": str(source), "target": str(target), "rate": rate, "max_seconds": max_seconds}
    memory = BASE_BYTES + int(max_seconds * rate) * BYTES_PER_SAMPLE
    await _run(_Job("audio", arguments, memory, timeout, "audio_timeout", "file"))


async def download_images(images: Sequence[ImageFile], max_bytes: int, timeout: float) -> None:
    """Write the images at addresses into their files. Raise what is wrong with an address."""
    await _run(
        _Job("download", {"images": images, "max_bytes": max_bytes}, BASE_BYTES, timeout, "image_timeout", "messages")
    )


async def prepare_images(
    images: Sequence[ImageFile],
    folder: Path,
    encoder: ImageEncoder,
    max_pixels: int,
    timeout: float,
    turn_seconds: float = math.inf,
) -> list[StoredImage]:
    """Write the tiles of images into a folder, as an encoder takes them. Raise what is wrong with an image. No image is
    begun after `turn_seconds`, so the results may be those of the first images only."""
    arguments = {
        "images": images, "folder": str(folder), "encoder": asdict(encoder), "max_pixels": max_pixels,
        "turn_seconds": min(turn_seconds, timeout),
    }  # fmt: skip
    memory = BASE_BYTES + max_pixels * BYTES_PER_PIXEL
    stored: list[StoredImage] = await _run(_Job("image", arguments, memory, timeout, "image_timeout", "messages"))
    return stored


async def _run(job: _Job) -> Any:
    """Return the result of a job. Raise ApiError 422 if it exceeds its limits."""
    child = await spawn(COMMAND, ONE_THREAD)
    try:
        async with asyncio.timeout(job.timeout):
            answer, _ = await child.communicate(json.dumps(job).encode())
    except TimeoutError:
        message = f"the {job.kind} was not decoded within {job.timeout:g} s ({job.option})"
        raise ApiError(422, message, param=job.param, code="decoding_timeout") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    if not answer:
        message = f"the {job.kind} cannot be decoded: the decoder crashed, or took too much memory"
        raise ApiError(422, message, param=job.param, code="decoding_failed")
    result, failure = json.loads(answer)
    if failure is not None and failure[0] == SYSTEM_ERROR:
        raise unavailable(failure[1])
    if failure is not None:
        raise error_of(*failure)
    return result


# -- the process ------------------------------------------------------------------------------------------------------


def write_samples(limit: Callable[[], None], source: str, target: str, rate: int, max_seconds: float) -> None:
    """Write the samples of a file. `limit` is called before it is read."""
    from ..speech.audio import load_samples  # imports wgpu, which the server's process does without

    limit()
    try:
        load_samples(Path(source), rate, rate, max_seconds).astype("<f4").tofile(target)
    except Error as error:
        raise type(error)(str(error).replace(source, "file"), code=error.reason) from error


def fetch_images(limit: Callable[[], None], images: list[ImageFile], max_bytes: int) -> None:
    """Write the images at addresses into their files. `limit` is called before anything is received."""
    from .remote_images import fetch

    limit()
    for image in images:
        if image["address"] is not None:
            Path(image["path"]).write_bytes(fetch(image["address"], max_bytes, image["argument"]))


def write_tiles(
    limit: Callable[[], None],
    images: list[ImageFile],
    folder: str,
    encoder: dict[str, Any],
    max_pixels: int,
    turn_seconds: float,
) -> list[StoredImage]:
    """Write the tiles of images into a folder until the turn ends. `limit` is called before anything of a client is
    read."""
    from ..image_files import open_image_file
    from ..llm.image_prompts import bytes_of_base64, content_digest

    max_rows, inputs = encoder["max_rows"], tuple(tuple(dims) for dims in encoder["inputs"])
    prepare = ImageEncoder(encoder["config"], inputs, max_rows).processor()
    limit()
    stored: list[StoredImage] = []
    ends = time.monotonic() + turn_seconds
    for image in images:
        if stored and time.monotonic() >= ends:
            break
        argument, data = image["argument"], Path(image["path"]).read_bytes()
        if image["address"] is None:
            data = bytes_of_base64(data, argument)
        tiles = prepare(open_image_file(data, argument, max_pixels=max_pixels))
        path, written = Path(image["path"]).with_suffix(".pixels"), 0
        prepared: list[PreparedTile] = []
        with path.open("wb") as file:
            for pixels in tiles.pixels:
                digest, rows = content_digest(pixels).hex(), prepare.rows(pixels, max_rows)
                prepared.append({"digest": digest, "rows": rows, "offset": written, "shape": list(pixels.shape)})
                written += file.write(pixels.tobytes())
        stored.append({"text": prepare.text(tiles), "path": str(path), "tiles": prepared})
    return stored


_DECODERS: Mapping[str, Callable[..., Any]] = {"audio": write_samples, "download": fetch_images, "image": write_tiles}


def main() -> int:
    """Run a job. Write its result, and the error's class, text and reason if there is one."""
    ignore_stop_signals()
    mute_libraries()
    job = _Job(*json.loads(sys.stdin.buffer.read()))
    if job.kind != "download":
        leave_network()
    end_after(job.timeout + ORPHAN_SECONDS)
    result = failure = None
    try:
        result = _DECODERS[job.kind](lambda: limit_memory(job.memory_bytes), **job.arguments)
    except (Error, MemoryError) as raised:
        error = raised if isinstance(raised, Error) else _takes_too_much(job)
        failure = [type(error).__name__, str(error), error.reason]
    except OSError as error:
        failure = [SYSTEM_ERROR, str(error), ""]
    print(json.dumps([result, failure]), flush=True)
    return 0


def _takes_too_much(job: _Job) -> InputError:
    return InputError(f"the {job.kind} takes too much memory to decode", argument=job.param, code="too_large")


if __name__ == "__main__":
    sys.exit(main())
