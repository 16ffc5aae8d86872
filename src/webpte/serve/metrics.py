"""What a server counts and measures, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .backend import Backend

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
GAUGES = {
    "queued": "answers that wait for a slot",
    "busy": "answers that have a slot",
    "slots": "slots that there are",
    "embedding": "requests for vectors under way",
    "recovery_seconds": "from the last end of a worker until the next was ready",
}
COUNTERS = {
    "passes": "passes over the weights",
    "rows": "rows of all passes; by passes, the batch",
    "prompt_tokens": "tokens of prompts",
    "cached_tokens": "tokens of prompts that were found in the prefix cache",
    "cache_hits": "answers that found some of their prompt in the prefix cache",
    "completion_tokens": "tokens of answers",
    "restarts": "ends of workers that were followed by another",
    "device_losses": "lost devices that a worker survived",
}


class Metrics:
    """Of one app: two in a process do not mix."""

    def __init__(self, backend: Backend) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Backend(backend))
        own = self._registry
        self.requests = Counter(
            "webpte_requests", "requests by endpoint and status", ("endpoint", "status"), registry=own
        )
        self.seconds = Histogram(
            "webpte_request_seconds", "of a whole request", ("endpoint",), registry=own, buckets=SECONDS
        )
        self.queue = Histogram("webpte_queue_seconds", "from the request to a slot", registry=own, buckets=SECONDS)
        self.first = Histogram(
            "webpte_first_token_seconds", "from the request to its first token", registry=own, buckets=SECONDS
        )
        self.between = Histogram(
            "webpte_between_tokens_seconds", "from a token to the next", registry=own, buckets=SECONDS
        )
        self.finished = Counter("webpte_answers", "answers by how they ended", ("reason",), registry=own)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Backend(Collector):
    """What the backend tells of itself when it is asked."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        stats = self._backend.stats()
        for name, told in GAUGES.items():
            yield GaugeMetricFamily(f"webpte_{name}", told, value=getattr(stats, name))
        for name, told in COUNTERS.items():
            yield CounterMetricFamily(f"webpte_{name}", told, value=getattr(stats, name))
        up = GaugeMetricFamily("webpte_state", "of the worker: 1 for the one it is in", labels=("state",))
        up.add_metric((stats.state,), 1)
        yield up

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering asks for no numbers."""
        yield from ()
