"""The server on many machines: replicas of a Ray Serve deployment, each the whole application with a worker of its own.

Ray's proxies speak HTTP and choose a replica for each request. They keep what waits, so that a replica that dies takes
nothing with it but what it was computing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from ..errors import InputError, UnsupportedError
from .config import FIELDS, Config
from .errors import WorkerUnavailable

NAME = "webpte"
LATE = 5.0  # seconds after the grace period, for last events to be sent and the worker to end
CHECKED = 2.0  # seconds between questions after a replica's health; it is replaced after three bad answers, or a death
RETRY_AFTER = 1.0  # seconds, in the Retry-After header, if the proxies' queue is full
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[MutableMapping[str, Any], Callable[[], Awaitable[Any]], Send], Awaitable[None]]


def deployment(
    *models: str | os.PathLike[str],
    config: Config | None = None,
    replicas: int | tuple[int, int] = 1,
    gpus: bool = False,
    resource: str | None = None,
    **options: Any,
) -> Any:
    """Return an application for `ray.serve.run` that serves `models` (PATH or NAME=PATH) as `webpte serve` does.

    `replicas` is a number or a range. In a range, Ray adds a replica for each `config.slots` requests that are computed
    or wait. With `gpus`, a replica takes one of Ray's GPUs and uses the adapter of the same number. With `resource`, it
    takes one unit of the custom resource of that name. Other `options` are passed to `ray.serve.deployment` and
    override ours. The paths of models must be valid on every machine.
    """
    serve = _ray_serve()
    settings = _checked(config or Config(), models)
    arguments = _options(settings, replicas, gpus, resource, options)
    try:
        application = serve.deployment(serve.ingress()(Replica), **arguments)
    except (TypeError, ValueError) as error:  # what it says of options that it does not know, or does not like
        raise InputError(f"Ray Serve rejects the options of the deployment: {error}", code="deployment") from error
    return application.bind(settings, gpus)


class Replica:
    """What each process of the deployment runs. Ray calls the methods, all of them in one event loop."""

    async def __init__(self, config: Config, gpus: bool) -> None:  # type: ignore[misc]  # as Ray allows
        from .application import app
        from .running import backend_for
        from .telemetry import configure_logging

        if gpus:
            os.environ["WEBPTE_ADAPTER"] = str(_adapter())  # for the worker, which inherits it
        configure_logging(config.log_level, config.log_format)
        self._app = app(backend_for(config), config)
        self._service = self._app.state.service
        await self._service.start()  # here, where Ray shows what is raised; that of a lifespan is only logged

    def __serve_build_asgi_app__(self) -> ASGI:
        """Return the running application. Ray's lifespan events are acknowledged and have no effect."""

        async def asgi(scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
            if scope["type"] != "lifespan":
                await self._app(scope, receive, _without_id(send))
                return
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})

        return asgi

    async def check_health(self) -> None:
        """Raise WorkerUnavailable if no worker will start again. During a restart, requests wait."""
        state = self._service.backend.stats().state
        if state in ("failed", "stopped"):
            raise WorkerUnavailable(f"the worker of this replica has {state} and will not start again. See its log.")

    async def __del__(self) -> None:
        """Stop the service. Ray calls this after the last response; the worker process then exits."""
        if hasattr(self, "_service"):
            await self._service.stop()


def _without_id(send: Send) -> Send:
    """Return `send` without the header of the request id: Ray's proxy adds it with the same value."""

    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [(name, value) for name, value in message["headers"] if name != b"x-request-id"]
        await send(message)

    return sent


def _checked(config: Config, models: tuple[str | os.PathLike[str], ...]) -> Config:
    for name in ("host", "port"):
        if getattr(config, name) != FIELDS[name].default:
            raise InputError(
                f"{name}: not allowed, because Ray listens. Use ray.serve.start(http_options={{{name!r}: …}})."
            )
    named = tuple(_placed(os.fspath(model)) for model in (*config.models, *models))
    if not named:
        raise InputError(argument="models", expected="a .pte file or a bundle", got="none", code="no_model")
    return config.model_copy(update={"models": named})


def _placed(model: str) -> str:
    """Return NAME=PATH with an absolute path, for processes in other folders. The file may be missing here."""
    name, equals, path = model.partition("=")
    if not equals or os.path.exists(model):
        name, path = Path(model).stem, model
    return f"{name}={os.path.abspath(path)}"


def _options(
    config: Config, replicas: int | tuple[int, int], gpus: bool, resource: str | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    scaled = isinstance(replicas, tuple)
    least, most = replicas if isinstance(replicas, tuple) else (replicas, replicas)
    if not 1 <= least <= most:
        raise InputError(
            argument="replicas", expected="a number of at least 1, or a pair of minimum and maximum", got=repr(replicas)
        )
    if "num_replicas" in more or ("autoscaling_config" in more and not scaled):
        raise InputError(
            "num_replicas, autoscaling_config: set replicas instead, to a number or a pair of minimum and maximum",
            code="conflicting_options",
        )
    actor: dict[str, Any] = {"num_cpus": 1} | ({"num_gpus": 1} if gpus else {})
    actor |= {"resources": {resource: 1}} if resource is not None else {}
    scaling = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": config.slots}
    arguments: dict[str, Any] = {
        "name": NAME,
        "max_ongoing_requests": config.slots * len(config.models),
        "max_queued_requests": config.max_queue * most,
        "backpressure_config": {"status_code": 429, "retry_after_s": RETRY_AFTER},
        "health_check_period_s": CHECKED,
        "graceful_shutdown_timeout_s": config.shutdown_timeout + LATE,
        **more,
        "ray_actor_options": actor | more.get("ray_actor_options", {}),
    }
    return arguments | (
        {"autoscaling_config": scaling | more.get("autoscaling_config", {})} if scaled else {"num_replicas": least}
    )


def _adapter() -> int:
    """Return the number of the GPU that Ray has assigned to this process."""
    import ray

    numbers = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    if len(numbers) != 1 or not numbers[0].isdigit():
        raise InputError(argument="gpus", expected="one GPU with a number for each replica", got=numbers)
    return int(numbers[0])


def _ray_serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise UnsupportedError(
            f"a deployment requires Ray Serve. Run: pip install 'webpte[ray,server]' ({error})"
        ) from error
    return serve
