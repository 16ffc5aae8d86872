"""The server process: listen, serve, and shut down in order. The worker process ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
from asyncio.constants import ACCEPT_RETRY_DELAY
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from ..errors import InputError
from ..llm.adapters import check_adapters
from .application import app
from .backend import Timeouts
from .config import Config
from .fleet import Fleet, FleetLimits
from .messages import ModelFile, WorkerOptions
from .processes import use_one_arena
from .protocol import bounded_protocol
from .service import Service
from .supervisor import Limits, Supervisor
from .telemetry import configure_logging
from .worker_process import RestartPolicy

logger = logging.getLogger(__name__)
KEEP_ALIVE_SECONDS = 75  # longer than load balancers keep idle connections, so that they close first
LAST_EVENTS_SECONDS = 5.0  # after the shutdown timeout, for last events to be sent
FAILED_SECONDS = 1.0  # in which `/health` reports that the server has failed, before it exits
SIGNALED = 128  # and the number of the signal, as shells report for a program that a signal has ended
ACCEPTED_AT_ONCE = 16  # connections, before other events are handled: thousands may arrive together
BACKLOG = 2048  # connections that the system keeps until they are accepted
SWITCH_SECONDS = 0.001  # until a thread that parses a large request lets the event loop run; Python's default is 0.005
OTHER_FILES = 256  # besides connections: libraries, pipes, the files of models
NO_RESOURCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # errors of `accept` after which asyncio pauses


def model_files(models: tuple[str, ...], adapters: tuple[str, ...] = ()) -> list[ModelFile]:
    """Return the models to serve, each given as NAME=PATH or as PATH, whose stem is then the name."""
    if not models:
        raise InputError("FILE: expected at least one .pte file or bundle to serve, got none")
    files = []
    for model in models:
        name, equals, path = model.partition("=")
        if not equals or os.path.exists(model):
            name, path = Path(model).stem, model
        if not name or not os.path.exists(path):
            raise InputError(
                f"{path or model} does not exist",
                code="missing_model",
                hint="Pass a .pte program, a bundle, a checkpoint (model.gguf or a folder), hf:org/name or a name like "
                "smollm2, as PATH or NAME=PATH.",
            )
        files.append(ModelFile(name, os.path.abspath(path)))
    names = [file.name for file in files]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two models are named {', '.join(double)}. Rename one of them: NAME=PATH.")
    return _with_adapters(files, adapters)


def _with_adapters(files: list[ModelFile], adapters: tuple[str, ...]) -> list[ModelFile]:
    """Return the files with their adapters, each given as NAME=FOLDER, or as MODEL:NAME=FOLDER."""
    folders: dict[str, dict[str, str]] = {file.name: {} for file in files}
    for adapter in adapters:
        names, _, folder = adapter.partition("=")
        model, _, name = names.rpartition(":")
        model = model or (files[0].name if len(files) == 1 else "")
        if model not in folders or not name or not folder or name in folders[model]:
            raise InputError(
                argument="adapters",
                expected=f"each NAME=FOLDER or MODEL:NAME=FOLDER once, MODEL one of {', '.join(folders)}",
                got=adapter,
                code="adapter",
            )
        folders[model][name] = os.path.abspath(folder)
    for of_model in folders.values():
        check_adapters(of_model)
    files = [replace(file, adapters=folders[file.name]) for file in files]
    if double := sorted({file.name for file in files} & {f"{f.name}:{name}" for f in files for name in f.adapters}):
        raise InputError(f"a model and an adapter are named {', '.join(double)}. Rename one of them.")
    return files


def worker_limits(config: Config) -> Limits:
    """Return the limits of the requests of each model, and of the restarts of its worker."""
    timeouts = Timeouts(config.queue_timeout, config.ttft_timeout, config.request_timeout)
    restarts = RestartPolicy(
        ping_interval=config.heartbeat_interval,
        heartbeat_timeout=config.heartbeat_timeout,
        stuck_timeout=config.stuck_timeout,
        max_backoff=config.max_restart_pause,
        restart_timeout=config.restart_timeout,
    )
    return Limits(config.max_queue, config.max_client_slots, timeouts, restarts, config.share_prefixes)


def backend_for(config: Config) -> Fleet:
    """Return the backend of a configuration."""
    options = WorkerOptions(config.slots, config.kv_cache, None, config.prefix_cache_bytes, config.warmup)
    limits = worker_limits(config)

    def worker(file: ModelFile, memory: int | None) -> Supervisor:
        return Supervisor(file, replace(options, memory=memory), limits)

    loading = FleetLimits(
        config.memory_bytes or None,
        config.idle_timeout,
        config.load_timeout,
        config.max_queue,
        max_backoff=config.max_restart_pause,
    )
    return Fleet(model_files(config.models, config.adapters), worker, loading)


def serve(config: Config, on_listening: Callable[[str], None]) -> int:
    """Serve until a signal, and return the exit code. `on_listening` gets the URL when requests are accepted. Raise
    WorkerUnavailable if the worker exits again and again."""
    use_one_arena()
    config = config.with_key_file().with_loopback_hosts()
    config.check_exposure()
    backend = backend_for(config)  # checks names and paths before anything is loaded
    listening = bind(config)
    configure_logging(config.log_level, config.log_format)
    config = config.model_copy(update={"max_connections": raise_file_limit(config.max_connections)})
    logger.info("loading", extra={"fields": {"models": config.models, "warmup": config.warmup}})
    application = app(backend, config)
    server = Server(
        uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            server_header=False,
            http=bounded_protocol(config, application.state.service.accounts),
            backlog=ACCEPTED_AT_ONCE,
            ws="none",
            proxy_headers=bool(config.trusted_proxies),
            forwarded_allow_ips=list(config.trusted_proxies),
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            lifespan="off",  # `_run` starts the backend, so that a failure to load is raised as it is
            timeout_graceful_shutdown=int(config.shutdown_timeout + LAST_EVENTS_SECONDS) + 1,
        )
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    with listening:
        return asyncio.run(_run(server, application.state.service, on_listening, listening))


def raise_file_limit(connections: int) -> int:
    """Let the process open a file for each connection. Return the number of connections that the system allows."""
    try:
        import resource
    except ImportError:  # not POSIX
        return connections
    needed = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == needed:
        return connections
    # Beyond the limit of connections, the server closes one and serves the others. Without a free file it accepts none.
    connections = max(1, allowed - min(OTHER_FILES, allowed // 2))
    fields = {"open_files": allowed, "needed": needed, "max_connections": connections}
    logger.warning("few files", extra={"fields": fields})
    return connections


class Listener(socket.socket):
    """A listening socket that reports the lack of files to asyncio once per pause of asyncio.

    After such an error asyncio stops accepting for a second, but calls `accept` again for the rest of its batch, and
    starts a timer after every failure. Each timer starts another batch: their number grows until the process does
    nothing else.
    """

    _no_file_until = 0.0  # time.monotonic()

    def accept(self) -> tuple[socket.socket, Any]:
        if time.monotonic() < self._no_file_until:
            raise BlockingIOError(errno.EAGAIN, "no file for a connection")
        try:
            return super().accept()
        except OSError as error:
            if error.errno in NO_RESOURCE:
                self._no_file_until = time.monotonic() + ACCEPT_RETRY_DELAY / 2
            raise


def bind(config: Config) -> socket.socket:
    """Return the socket to listen on. Raise InputError if the server could not listen: before it loads its models."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = None
    try:
        listener = Listener(family)
        if os.name == "posix":  # elsewhere the option would let two servers have the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # as asyncio does: IPv4 only where it is asked for
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((config.host, config.port))
        return listener
    except OSError as error:
        if listener is not None:
            listener.close()
        raise InputError(
            f"host, port: cannot listen on {config.host}:{config.port}: {error.strerror or error}. "
            "Choose another port, or stop the server that uses it.",
            code="address_unavailable",
        ) from error


class Server(uvicorn.Server):
    """Leaves signals to `_run`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(server: Server, service: Service, on_listening: Callable[[str], None], listening: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    draining: list[asyncio.Task[None]] = []

    def on_signal(number: int) -> None:
        if ending.is_set():  # the second signal
            end_now(service, number)
        logger.info("signal", extra={"fields": {"signal": signal.Signals(number).name}})
        ending.set()
        server.should_exit = True
        draining.append(loop.create_task(service.stop()))

    watch_signals(loop, on_signal)
    serving = loop.create_task(server.serve([listening]))  # while models load, /health and the page are answered
    try:
        if await _started(service, ending):
            freeze_garbage_collector()
            await _announce(server, serving, on_listening, listening)
            await _serve_until_failure(service, serving)
    finally:
        server.should_exit = True
        await (draining[0] if draining else service.stop())
        await asyncio.gather(serving, return_exceptions=True)
    return 0


def watch_signals(loop: asyncio.AbstractEventLoop, on_signal: Callable[[int], None]) -> None:
    """Call `on_signal` in the event loop for Ctrl-C and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, on_signal, number)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(on_signal, number))


def freeze_garbage_collector() -> None:
    """Exempt what is loaded from garbage collection. A full collection runs when the heap has grown by a quarter: the
    less it counts, the less garbage accumulates."""
    gc.collect()
    gc.freeze()


async def _started(service: Service, ending: asyncio.Event) -> bool:
    """Start the backend. Return False if a signal came first."""
    starting, waiting = asyncio.ensure_future(service.start()), asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        return not ending.is_set()
    finally:
        for task in (starting, waiting):
            task.cancel()
        await asyncio.gather(starting, waiting, return_exceptions=True)


async def _serve_until_failure(service: Service, serving: asyncio.Task[None]) -> None:
    """Return when the server ends. Raise the reason if the backend fails first."""
    failing = asyncio.ensure_future(service.backend.failed())
    try:
        await asyncio.wait((serving, failing), return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            logger.error("failed", extra={"fields": {"error": failing.result().reason}})
            await asyncio.wait((serving,), timeout=FAILED_SECONDS)
            raise failing.result()
        serving.result()
    finally:
        failing.cancel()
        await asyncio.gather(failing, return_exceptions=True)


async def _announce(
    server: Server, serving: asyncio.Task[None], on_listening: Callable[[str], None], listening: socket.socket
) -> None:
    """Report the URL once the server listens. Its port may be one that the system picked."""
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if not server.started:
        raise InputError("the server cannot listen on its address. The log has the reason.")
    listening.listen(BACKLOG)  # asyncio has set it to the number that it accepts at once
    host, port = listening.getsockname()[:2]
    with contextlib.suppress(OSError):  # stderr may be full or closed: requests are accepted all the same
        on_listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")


def end_now(service: Service, number: int) -> None:
    """End the server and its workers at once, after the signal with this number."""
    for pid in getattr(service.backend, "worker_pids", ()):
        with contextlib.suppress(OSError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends a process with either
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(SIGNALED + number)
