"""`/v1/audio/transcriptions` and `/v1/audio/translations`: the text of a recording."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..clients import client_of, clock_of, until_disconnect
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
    body, upload = await read_form(request, service.config, TranscriptionRequest)
    if body.stream == "true" and body.response_format not in STREAMED:
        raise ApiError(400, f"stream: expected response_format {' or '.join(STREAMED)}", param="stream")
    model = await service.open_model(request, body.model, body.kind)
    request.scope["state"]["log"] |= {"model": model.name, "audio_bytes": upload.stat().st_size}
    turn = contextlib.AsyncExitStack()  # of the recording: it is decoded when the model is next
    try:
        samples = await until_disconnect(request.receive, _decode(request, model.info, upload, turn))
        texts: asyncio.Queue[str | None] = asyncio.Queue()
        work = functools.partial(
            service.backend.transcribe,
            model.name,
            str(samples),
            body.language,
            task,
            body.response_format in TIMED,
            clock_of(request).left,
            client_of(request),
            texts.put_nowait,
            model.info.version,
        )
        if body.stream == "true":
            streamed, turn = turn, contextlib.AsyncExitStack()
            return EventStream(
                _events(request, work, texts), streamed.aclose, write_timeout=service.config.write_timeout
            )
        transcript = await until_disconnect(request.receive, work())
    finally:
        await turn.aclose()
    request.scope["state"]["log"]["audio_seconds"] = round(transcript.seconds, 3)
    return _response(transcript, body.response_format, task)


async def _decode(request: Request, model: ModelInfo, upload: Path, turn: contextlib.AsyncExitStack) -> Path:
    """Wait until the model can take a recording, and return the file of its samples, which exists until `turn` ends."""
    service: Service = request.app.state.service
    config, client, clock = service.config, client_of(request), clock_of(request)
    await turn.enter_async_context(service.recordings.slot(client, clock.left))
    samples = upload.with_name("samples")
    turn.callback(samples.unlink, missing_ok=True)
    async with service.decoders.slot(client, clock=clock):
        await decode_audio(upload, samples, model.rate, config.max_audio_seconds, config.audio_timeout)
    upload.unlink()
    held = turn.enter_context(contextlib.ExitStack())
    service.accounts.hold_media(held, client, samples.stat().st_size)
    return samples


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
