"""Which kernels were fastest on this machine's device: a small file in the user's cache."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..version import __version__
from ..wgsl import Caps


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
    try:
        found = json.loads(choices_path().read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        device: {job: name for job, name in choices.items() if isinstance(name, str)}
        for device, choices in found.items()
        if isinstance(choices, dict)
    }
