"""A server: answers and vectors over HTTP, by a worker process that owns the device and may fail."""

from typing import TYPE_CHECKING

from ..deferred import lazy_exports
from .errors import DeadlineExceeded, QueueFull, WorkerUnavailable

if TYPE_CHECKING:
    from .application import app
    from .config import Config
    from .on_ray import deployment
    from .running import backend_for, serve
    from .supervisor import Supervisor

__all__ = [
    "Config",
    "DeadlineExceeded",
    "QueueFull",
    "Supervisor",
    "WorkerUnavailable",
    "app",
    "backend_for",
    "deployment",
    "serve",
]

if not TYPE_CHECKING:  # the worker needs none of the packages of the HTTP side, and that side nothing of the device
    __getattr__ = lazy_exports(
        __name__,
        {
            "Config": "config",
            "Supervisor": "supervisor",
            "app": "application",
            "backend_for": "running",
            "deployment": "on_ray",
            "serve": "running",
        },
    )


def __dir__() -> list[str]:
    return sorted(__all__)
