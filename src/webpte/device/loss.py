"""Why a device was lost, as far as can be known: wgpu-py logs what the engine calls back with, and offers nothing else.

The engine calls back when the next commands are begun, which is too late to rely on: whether a device is there is found
out by asking it. The reason is only for messages.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_reasons: list[str] = []


def _listen(record: logging.LogRecord) -> bool:
    """A filter, which keeps nothing back; a handler would keep wgpu's errors from being printed."""
    said = re.match(r"The WGPU device was lost \((\w+)\)", record.getMessage())
    if said:
        _reasons[:] = [said[1].lower()]
    return True


logging.getLogger("wgpu").addFilter(_listen)


def reason_of_loss(device: Any, error: Exception) -> str:
    """What is said of a device that has just refused with `error` to be asked."""
    _reasons.clear()
    device.create_command_encoder()
    return _reasons[0] if _reasons else " ".join(str(error).split())
