"""A server process: listens, answers, and ends in order. The worker's process ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from ..errors import Error, InputError
from .application import app
from .backend import Deadlines
from .config import Config
from .freed import one_heap
from .keeper import Keeping
from .logs import log, set_up
from .messages import ModelFile, Options
from .process import Patience
from .service import Service
from .supervisor import Limits, Supervisor

KEPT = 75  # seconds that an idle connection stays open: longer than balancers keep theirs, so that they close first
LATE = 5.0  # seconds behind the grace period, for last events to be sent
INTERRUPTED = 130


def model_files(models: tuple[str, ...]) -> list[ModelFile]:
    """What is to be served: PATH, whose name is that of the file, or NAME=PATH."""
    if not models:
        raise InputError("there is no model to serve: name a .pte file or a bundle")
    files = []
    for given in models:
        name, equals, path = given.partition("=")
        if not equals or os.path.exists(given):
            name, path = Path(given).stem, given
        if not name or not os.path.exists(path):
            raise InputError(f"{path or given} is not there; name a .pte file or a bundle, or NAME=PATH")
        files.append(ModelFile(name, os.path.abspath(path)))
    names = [file.name for file in files]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two models are called {', '.join(double)}; give one another name: NAME=PATH")
    return files


def backend_for(config: Config) -> Supervisor:
    """The backend that a configuration asks for."""
    options = Options(
        config.slots, config.kv_cache, config.memory_bytes or None, config.prefix_cache_bytes, config.prepare
    )
    deadlines = Deadlines(config.queue_seconds, config.first_token_seconds, config.total_seconds)
    keeping = Keeping(Patience(stuck=config.stuck_seconds))
    return Supervisor(model_files(config.models), options, Limits(config.max_queue, deadlines, keeping))


def serve(config: Config, told: Callable[[str], None]) -> int:
    """Until a signal; returns the exit code. `told` gets the address when requests are answered there."""
    one_heap()
    config = config.with_keys()
    config.check_listening()
    backend = backend_for(config)  # names and paths are checked before anything is opened
    set_up(config.log_level, config.log_format)
    log.info("loading", extra={"fields": {"models": config.models, "prepare": config.prepare}})
    made = app(backend, config)
    server = Server(
        uvicorn.Config(
            made,
            host=config.host,
            port=config.port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEPT,
            lifespan="off",  # see `_run`: what keeps models from loading is an error of ours, not of uvicorn's
            timeout_graceful_shutdown=int(config.grace_seconds + LATE) + 1,
        )
    )
    return asyncio.run(_run(server, made.state.service, told))


class Server(uvicorn.Server):
    """Signals are `_run`'s to hear."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(server: Server, service: Service, told: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    draining: list[asyncio.Task[None]] = []

    def hear(number: int) -> None:
        if ending.is_set():  # by somebody who will not wait
            end_now(service)
        log.info("signal", extra={"fields": {"signal": signal.Signals(number).name}})
        ending.set()
        server.should_exit = True
        draining.append(loop.create_task(service.stop()))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, hear, number)
    try:
        if await _started(service, ending):
            settle()
            serving = loop.create_task(server.serve())
            await _told(server, serving, told)
            await serving
    finally:
        await (draining[0] if draining else service.stop())
    return 0


def settle() -> None:
    """Tell the collector that what is loaded stays. It looks at everything when that has grown by a quarter: the less
    it counts, the less garbage piles up."""
    gc.collect()
    gc.freeze()


async def _started(service: Service, ending: asyncio.Event) -> bool:
    """Whether models are there; not, where a signal came first. What keeps them from loading is raised."""
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


async def _told(server: Server, serving: asyncio.Task[None], told: Callable[[str], None]) -> None:
    """Tell the address once it is listened at; the port may have been any."""
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if not server.started:
        raise InputError("the address cannot be listened at; the log tells why. Is another server there?")
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    told(f"http://{f'[{host}]' if ':' in host else host}:{port}")


def end_now(service: Service) -> None:
    """End both processes without waiting for anything."""
    with contextlib.suppress(Error, OSError, AttributeError):
        pid = getattr(service.backend, "worker_pid", None)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)
