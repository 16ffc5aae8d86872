"""When workers are replaced, and when they are not replaced any more, on a clock that the tests set."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from webpte.serve.config import Config
from webpte.serve.running import worker_limits
from webpte.serve.worker_process import Outage, RestartPolicy, WorkerExit

KILLED = WorkerExit("exited by SIGKILL")


class Clock:
    """The time in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("webpte.serve.worker_process.time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_outage_backoff_doubles_to_maximum_and_ends_at_timeout(clock):
    outage = Outage(RestartPolicy(backoff=0.5, max_backoff=6.0, restart_timeout=30.0))
    pauses = []
    while not outage.is_final(ever_ready=True):
        outage.add(KILLED, failed=True)
        pauses.append(outage.pause)
        clock.now += outage.pause + 1  # the next worker lives for a second
        assert outage.pause == 0
        assert len(pauses) < 100
    assert pauses == [0.5, 1, 2, 4, 6, 6, 4.5]  # the last one starts at the timeout
    assert outage.num_exits == 7 and outage.seconds == 31.0


def test_outage_without_timeout_is_never_final(clock):
    outage = Outage(RestartPolicy(restart_timeout=0.0))
    for _ in range(2000):
        outage.add(KILLED, failed=True)
        clock.now += 1000
    assert not outage.is_final(ever_ready=True) and math.isfinite(outage.pause)
    outage.add(KILLED, failed=True)
    assert outage.pause == RestartPolicy().max_backoff


def test_outage_before_any_worker_was_ready_is_final_after_a_few_exits(clock):
    outage = Outage(RestartPolicy(max_start_failures=3))
    for final in (False, False, True):
        outage.add(KILLED, failed=True)
        assert outage.is_final(ever_ready=False) is final
    assert not outage.is_final(ever_ready=True)


def test_exit_that_a_request_caused_is_followed_by_a_worker_at_once(clock):
    outage = Outage(RestartPolicy(backoff=0.5))
    for failed, pause in ((True, 0.5), (True, 1.0), (False, 0.0), (True, 0.5)):
        outage.add(KILLED, failed=failed)
        assert outage.pause == pause


def test_policy_is_that_of_the_configuration(tmp_path):
    (tmp_path / "a.pte").touch()
    config = Config(
        models=(str(tmp_path / "a.pte"),),
        heartbeat_interval=0.5,
        heartbeat_timeout=7.0,
        stuck_timeout=8.0,
        restart_timeout=9.0,
        max_restart_pause=3.0,
    )
    assert worker_limits(config).restarts == RestartPolicy(
        ping_interval=0.5, heartbeat_timeout=7.0, stuck_timeout=8.0, restart_timeout=9.0, max_backoff=3.0
    )
    defaults = worker_limits(Config(models=config.models)).restarts
    assert defaults == RestartPolicy(), "the defaults of the configuration and of the policy"
