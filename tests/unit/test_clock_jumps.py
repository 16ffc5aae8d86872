"""A clock of the machine that is set back and forward by a day: nothing that lasts is measured with it."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from pathlib import Path

import pytest

from tests.support.harness.stand_in import Asked, StandIn
from tests.support.models.tokenizers import byte_level
from webpte.cli.programs import open_source
from webpte.progress import ignore
from webpte.serve.accounts import Account, RequestClock
from webpte.serve.application import app
from webpte.serve.config import Config

DAY_SECONDS = 86_400.0
PROMPT = {"model": "stand-in", "prompt": "hi", "stream": False}


@pytest.fixture
def jumping(monkeypatch):
    """Let each reading of the clock be a day before or after the last one."""
    read, days = time.time, itertools.cycle([DAY_SECONDS, -DAY_SECONDS, 0.0])
    monkeypatch.setattr(time, "time", lambda: read() + next(days))


def test_requests_do_not_end_by_the_clock(tmp_path, jumping):
    async def answers() -> list[int]:
        application = app(StandIn(tmp_path, byte_level()), Config(request_timeout=60.0, queue_timeout=30.0))
        async with application.router.lifespan_context(application):
            asked = [await Asked(application, "/api/generate", PROMPT).answer() for _ in range(4)]
            return [each.status for each in asked]

    assert asyncio.run(answers()) == [200] * 4


def test_limits_and_accounts_do_not_follow_the_clock(jumping):
    clock, account = RequestClock(60.0, 30.0), Account()
    account.use("decoding_seconds", 100.0)
    for _ in range(6):
        with clock.waiting():
            time.time()
        assert 40 < clock.left <= 60 and 20 < clock.left_to_wait <= 30
        assert 50 < account.recent("decoding_seconds") <= 100


@pytest.mark.parametrize("days", [-1, 0, 1])
def test_build_is_announced_once_whatever_the_clock_says(tmp_path, monkeypatch, capsys, days):
    """The clock is set while the program is built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkpoint = tmp_path / "tiny.gguf"
    checkpoint.write_bytes(b"GGUF")
    read, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: read() + shift[0])
    monkeypatch.setattr("webpte.builder.programs._key", lambda *arguments: "key")

    def build(checkpoint: Path, path: Path, **options: object) -> None:
        shift[0] = days * DAY_SECONDS
        shutil.copy(checkpoint, path)

    monkeypatch.setattr("webpte.builder.build_program", build)
    for announced in (True, False, False):
        open_source(str(checkpoint), ignore, 64)
        assert ("tiny.pte" in capsys.readouterr().err) == announced
        shift[0] -= DAY_SECONDS
