"""Audio of clients, decoded in a process that has a memory limit and can be killed.

The decoders are libraries in C. A file that makes one crash, or take all memory, ends this process only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from ..errors import Error, InputError, error_of
from .errors import ApiError
from .processes import end_after, ignore_stop_signals, limit_memory, spawn

COMMAND = (sys.executable, "-m", "webpte.serve.audio_process")
BYTES_PER_SAMPLE = 64  # that decoding and resampling take: copies in f32 and f64, at 48,000 samples per second
BASE_BYTES = 512 << 20
ORPHAN_SECONDS = 1.0  # after the timeout, when a process whose server has died ends by itself


async def decode_audio(source: Path, target: Path, rate: int, max_seconds: float, timeout: float) -> None:
    """Write the samples of a file as little-endian f32 at `rate`. Raise what is wrong with the file."""
    child = await spawn((*COMMAND, str(source), str(target), str(rate), str(max_seconds), str(timeout)))
    try:
        async with asyncio.timeout(timeout):
            answer, _ = await child.communicate()
    except TimeoutError:
        raise ApiError(422, f"the audio was not decoded within {timeout:g} s (audio_timeout)", param="file") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    if not answer:
        raise ApiError(422, "the audio cannot be decoded: the decoder crashed, or took too much memory", param="file")
    failure = json.loads(answer)
    if failure is not None:
        raise error_of(*failure)


def main() -> int:
    """Decode a file; write null, or an error's class, text and reason."""
    from ..speech.audio import load_samples  # imports wgpu, which the server's process does without

    ignore_stop_signals()
    source, target, rate, max_seconds, timeout = sys.argv[1:]
    end_after(float(timeout) + ORPHAN_SECONDS)
    limit_memory(BASE_BYTES + int(float(max_seconds) * int(rate)) * BYTES_PER_SAMPLE)
    failure = None
    try:
        samples = load_samples(Path(source), int(rate), int(rate), float(max_seconds))
        samples.astype("<f4").tofile(target)
    except MemoryError:
        error = InputError("the audio takes too much memory to decode", argument="file", code="too_large")
        failure = [type(error).__name__, str(error), error.reason]
    except Error as error:
        failure = [type(error).__name__, str(error).replace(source, "file"), error.reason]
    print(json.dumps(failure), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
