"""`/v1/audio/transcriptions` and `/v1/audio/translations`: the text of a recording."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..clients import client_of, until_disconnect
from ..forms import read_form
from ..media_process import decode_audio
from ..messages import ModelInfo, SpeechTask, Transcribed
from ..responses import JsonResponse
from ..service import Service
from .requests import TranscriptionRequest
from .response_types import Transcription, TranscriptionUsage, VerboseTranscription
from .subtitles import srt, vtt

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
    model = await service.open_model(request, body.model, "speech")
    request.scope["state"]["log"] |= {"model": model.name, "audio_bytes": len(file)}
    with TemporaryDirectory(prefix="webpte-") as folder:
        work = _transcribe(request, model.info, Path(folder), file, body, task)
        transcript = await until_disconnect(request.receive, work)
    request.scope["state"]["log"]["audio_seconds"] = round(transcript.seconds, 3)
    return _response(transcript, body.response_format, task)


async def _transcribe(
    request: Request, model: ModelInfo, folder: Path, file: bytes, body: TranscriptionRequest, task: SpeechTask
) -> Transcribed:
    service: Service = request.app.state.service
    config, client = service.config, client_of(request)
    upload, samples = folder / "upload", folder / "samples"
    async with service.turns.turn(client), service.decoders:
        upload.write_bytes(file)
        await decode_audio(upload, samples, model.rate, config.max_audio_seconds, config.audio_timeout)
    timestamps = body.response_format in TIMED
    return await service.backend.transcribe(
        model.name, str(samples), body.language, task, timestamps, config.request_timeout, client
    )


def _response(transcript: Transcribed, form: str, task: SpeechTask) -> Response:
    if form == "text":
        return PlainTextResponse(transcript.text + "\n")
    if form in ("srt", "vtt"):
        cues = [(segment.start, segment.end, segment.text) for segment in transcript.segments]
        return PlainTextResponse(srt(cues) if form == "srt" else vtt(cues))
    usage: TranscriptionUsage = {"type": "duration", "seconds": math.ceil(transcript.seconds)}
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
