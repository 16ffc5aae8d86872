"""Which kernels were fastest on this machine's device: a small file in the user's cache."""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..version import __version__
from ..wgsl import Caps

logger = logging.getLogger("webpte")
MOST_BYTES = 16 << 20  # a choice takes some 60 bytes


def choices_path() -> Path:
    """Where choices are kept, for all devices; deleting it is safe."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webpte" / "tuning.json"


def _device_key(caps: Caps) -> str:
    """Another device, driver or version of the kernels asks for other choices."""
    return f"{caps.adapter}; webpte {__version__}"


def read_choices(caps: Caps) -> dict[str, str]:
    """Job to variant, as measured on this device; empty if nothing was, or the file is damaged."""
    return _read_all().get(_device_key(caps), {})


def write_choices(caps: Caps, choices: Mapping[str, str]) -> None:
    """Add choices to what is known of this device. Another process sees the old file or the new one."""
    everything = _read_all()
    everything.setdefault(_device_key(caps), {}).update(choices)
    path = choices_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".tuning-", delete=False) as file:
        json.dump(everything, file, indent=1, sort_keys=True)
    os.replace(file.name, path)


def _read_all() -> dict[str, dict[str, str]]:
    """What the file holds. One that is too large, no regular file or not ours is ignored, and said so."""
    path = choices_path()
    try:
        found = json.loads(_read_small(path))
        if not isinstance(found, dict) or not all(isinstance(choices, dict) for choices in found.values()):
            raise ValueError("it is not a table of devices")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("%s is ignored: %s. Deleting it is safe.", path, str(error) or type(error).__name__)
        return {}
    return {
        device: {job: name for job, name in choices.items() if isinstance(name, str)}
        for device, choices in found.items()
    }


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe must not wait for a writer


def _read_small(path: Path) -> str:
    with open(path, "rb", opener=_open) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        if found.st_size > MOST_BYTES:
            raise ValueError(f"it has {found.st_size} bytes, more than {MOST_BYTES}")
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            raise ValueError("it belongs to another user")
        return file.read(MOST_BYTES).decode()
