"""Logs and metrics. Log lines hold names, numbers and ids: never a prompt or a response."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..text import sanitize, sanitize_line, size
from .accounts import HELD, RESOURCES, Accounts
from .backend import Backend

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)  # seconds
GAUGES = {
    "queued": "requests that wait for a slot",
    "busy": "requests that have a slot",
    "slots": "cache slots allocated",
    "embedding": "embedding requests in flight",
    "transcribing": "speech requests in flight",
    "recovery_seconds": "from the last exit of a worker until the next was ready",
}
COUNTERS = {
    "steps": "engine steps: passes over the weights",
    "tokens": "tokens of all steps; divided by steps, the mean batch size",
    "prompt_tokens": "tokens of prompts",
    "cached_tokens": "tokens of prompts that were found in the prefix cache",
    "cache_hits": "requests that found part of their prompt in the prefix cache",
    "completion_tokens": "tokens generated",
    "restarts": "workers that were replaced",
    "device_losses": "lost devices that a worker recovered from",
}


class LogFormatter(logging.Formatter):
    """One line per record, with its `fields`: JSON, or text for a terminal, where a traceback follows the line."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        level, event = record.levelname.lower(), record.getMessage()
        fields: dict[str, Any] = getattr(record, "fields", {})
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        if self._as_json:
            line = {"time": stamp, "level": level, "logger": record.name, "event": event, **fields}
            return json.dumps(line | ({"traceback": traceback} if traceback else {}), ensure_ascii=False, default=str)
        pairs = "".join(f" {name}={sanitize_line(_shown(name, value))}" for name, value in fields.items())
        return f"{stamp} {level} {sanitize_line(event)}{pairs}" + (f"\n{sanitize(traceback)}" if traceback else "")


def _shown(name: str, value: object) -> str:
    """Return a field as people read it."""
    return size(value).replace(" ", "") if name.endswith("_bytes") and isinstance(value, int) else str(value)


def configure_logging(level: str, log_format: str) -> None:
    """Write the log of the process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    handler.setFormatter(LogFormatter(as_json))
    for name in ("webpte", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    # uvicorn announces its process and lifespan, which the server's own lines say better.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger("webpte").level))
    logging.getLogger("uvicorn.access").disabled = True  # `RequestMiddleware` writes a line per request


class Metrics:
    """The Prometheus metrics of one application. Two applications in a process have separate registries."""

    def __init__(self, backend: Backend, accounts: Accounts) -> None:
        self._registry = own = CollectorRegistry()
        own.register(_BackendCollector(backend))
        own.register(_AccountsCollector(accounts))
        self.requests = Counter(
            "webpte_requests", "requests by endpoint and status", ("endpoint", "status"), registry=own
        )
        self.seconds = Histogram(
            "webpte_request_seconds", "duration of a request", ("endpoint",), registry=own, buckets=BUCKETS
        )
        self.queue = Histogram(
            "webpte_queue_seconds",
            "from the request, or the load of its model, to a slot",
            registry=own,
            buckets=BUCKETS,
        )
        self.load = Histogram(
            "webpte_load_seconds", "of requests that waited for their model", registry=own, buckets=BUCKETS
        )
        self.first_token = Histogram(
            "webpte_first_token_seconds",
            "from the request to its first token, with the load of its model",
            registry=own,
            buckets=BUCKETS,
        )
        self.inter_token = Histogram(
            "webpte_between_tokens_seconds", "from a token to the next", registry=own, buckets=BUCKETS
        )
        self.finished = Counter("webpte_answers", "responses by finish reason", ("reason",), registry=own)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _BackendCollector(Collector):
    """Reads the backend's counters when metrics are scraped."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        stats = self._backend.stats()
        for name, description in GAUGES.items():
            yield GaugeMetricFamily(f"webpte_{name}", description, value=getattr(stats, name))
        for name, description in COUNTERS.items():
            yield CounterMetricFamily(f"webpte_{name}", description, value=getattr(stats, name))
        state = GaugeMetricFamily("webpte_state", "1 for the current state of the worker", labels=("state",))
        state.add_metric((stats.state,), 1)
        yield state

    def describe(self) -> Iterator[Metric]:
        """Return nothing, so that registration does not read the backend."""
        yield from ()


class _AccountsCollector(Collector):
    """Reads what clients use when metrics are scraped. No metric names a client: the label would be a key."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def collect(self) -> Iterator[Metric]:
        accounts = self._accounts
        yield GaugeMetricFamily("webpte_clients", "clients with an account", value=len(accounts))
        held = GaugeMetricFamily("webpte_held", "what all clients hold now, by resource", labels=("resource",))
        used = CounterMetricFamily("webpte_used", "what all clients have used, by resource", labels=("resource",))
        refused = CounterMetricFamily("webpte_refused", "refusals because of a resource", labels=("resource",))
        largest = GaugeMetricFamily(
            "webpte_largest_client", "the most that one client holds now, or has used lately", labels=("resource",)
        )
        for resource in RESOURCES:
            (held if resource in HELD else used).add_metric((resource,), accounts.totals[resource])
            refused.add_metric((resource,), accounts.refused[resource])
            largest.add_metric((resource,), accounts.largest(resource))
        yield from (held, used, refused, largest)

    def describe(self) -> Iterator[Metric]:
        yield from ()
