"""`/v1/audio/transcriptions` and `/v1/audio/translations`: the text of a recording."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..clients import client_of, until_disconnect
from ..errors import ApiError
from ..forms import read_form
from ..media_process import decode_audio
from ..messages import ModelInfo, SpeechTask, Transcribed
from ..responses import EventStream, JsonResponse
from ..service import Service
from .requests import TranscriptionRequest
from .response_types import TranscriptDelta, TranscriptDone, Transcription, TranscriptionUsage, VerboseTranscription
from .subtitles import srt, vtt

STREAMED = ("json", "text")
TIMED = ("srt", "vtt", "verbose_json")  # formats with the times of segments


async def transcriptions(request: Request) -> Response:
    """Handle `POST /v1/audio/transcriptions`."""
    return await _respond(request, "transcribe")


async def translations(request: Request) -> Response:
    """Handle `POST /v1/audio/translations`: a text in English."""
    return await _respond(request, "translate")


async def _respond(request: Request, task: SpeechTask) -> Response:
    service: Service = request.app.state.service
    body, file = await read_form(request, service.config, TranscriptionRequest)
    if body.stream == "true" and body.response_format not in STREAMED:
        raise ApiError(400, f"stream: expected response_format {' or '.join(STREAMED)}", param="stream")
    model = await service.open_model(request, body.model, "speech")
    request.scope["state"]["log"] |= {"model": model.name, "audio_bytes": len(file)}
    folder: TemporaryDirectory[str] | None = TemporaryDirectory(prefix="webpte-")
    assert folder is not None
    try:
        samples = Path(folder.name, "samples")
        await until_disconnect(
            request.receive, _decode(request, model.info, Path(folder.name, "upload"), samples, file)
        )
        texts: asyncio.Queue[str | None] = asyncio.Queue()
        work = functools.partial(
            service.backend.transcribe,
            model.name,
            str(samples),
            body.language,
            task,
            body.response_format in TIMED,
            service.config.request_timeout,
            client_of(request),
            texts.put_nowait,
        )
        if body.stream == "true":
            streamed, folder = folder, None
            return EventStream(
                _events(request, work, texts), _removal(streamed), write_timeout=service.config.write_timeout
            )
        transcript = await until_disconnect(request.receive, work())
    finally:
        if folder is not None:
            folder.cleanup()
    request.scope["state"]["log"]["audio_seconds"] = round(transcript.seconds, 3)
    return _response(transcript, body.response_format, task)


async def _decode(request: Request, model: ModelInfo, upload: Path, samples: Path, file: bytes) -> None:
    service: Service = request.app.state.service
    config = service.config
    async with service.decoders.slot(client_of(request), config.queue_timeout):
        upload.write_bytes(file)
        await decode_audio(upload, samples, model.rate, config.max_audio_seconds, config.audio_timeout)


def _removal(folder: TemporaryDirectory[str]) -> Callable[[], Awaitable[None]]:
    async def remove() -> None:
        folder.cleanup()

    return remove


async def _events(
    request: Request, work: Callable[[], Coroutine[Any, Any, Transcribed]], texts: asyncio.Queue[str | None]
) -> AsyncIterator[TranscriptDelta | TranscriptDone]:
    """Yield the text that each window adds, then the whole."""
    computed = asyncio.ensure_future(work())
    computed.add_done_callback(lambda _: texts.put_nowait(None))
    sent = 0
    try:
        while (text := await texts.get()) is not None:
            if text[sent:]:
                yield {"type": "transcript.text.delta", "delta": text[sent:]}
            sent = max(sent, len(text))
        transcript = await computed
        request.scope["state"]["log"]["audio_seconds"] = round(transcript.seconds, 3)
        if rest := transcript.text[sent:]:
            yield {"type": "transcript.text.delta", "delta": rest}
        yield {"type": "transcript.text.done", "text": transcript.text, "usage": _usage(transcript)}
    finally:
        computed.cancel()


def _usage(transcript: Transcribed) -> TranscriptionUsage:
    return {"type": "duration", "seconds": math.ceil(transcript.seconds)}


def _response(transcript: Transcribed, form: str, task: SpeechTask) -> Response:
    if form == "text":
        return PlainTextResponse(transcript.text + "\n")
    if form in ("srt", "vtt"):
        cues = [(segment.start, segment.end, segment.text) for segment in transcript.segments]
        return PlainTextResponse(srt(cues) if form == "srt" else vtt(cues))
    usage = _usage(transcript)
    if form == "json":
        content: Transcription = {"text": transcript.text, "usage": usage}
        return JsonResponse(content)
    verbose: VerboseTranscription = {
        "task": task,
        "language": transcript.language,
        "duration": transcript.seconds,
        "text": transcript.text,
        "segments": [
            {"id": number, "start": each.start, "end": each.end, "text": each.text, "tokens": list(each.tokens)}
            for number, each in enumerate(transcript.segments)
        ],
        "usage": usage,
    }
    return JsonResponse(verbose)
