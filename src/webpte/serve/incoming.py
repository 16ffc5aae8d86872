"""Bodies of requests: bounded in size and in time, JSON and nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request

from .config import Config
from .failures import Refusal


async def read_json(request: Request, config: Config) -> Any:
    """The JSON of a body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page elsewhere could send any other without being asked first
        raise Refusal(415, f"the body is JSON: send Content-Type: application/json, not {kind[:40] or 'none'}")
    try:
        async with asyncio.timeout(config.read_seconds):
            data = await _read(request, config.max_body_bytes)
    except TimeoutError:
        raise Refusal(
            408,
            f"the body was not sent within {config.read_seconds:g} s (read_seconds)",
            headers={"Connection": "close"},
        ) from None
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refusal(400, f"the body is no JSON: {why}", code="invalid_json") from None


async def _read(request: Request, most: int) -> bytes:
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > most:
        raise _too_large(most)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: int) -> Refusal:
    """The rest of such a body is not read, so nothing can follow it on its connection."""
    return Refusal(413, f"the body has more than {most} bytes (max_body_bytes)", headers={"Connection": "close"})


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
