"""Environment variables. This module reads them for all packages, when they are used and not at import.

Variables are inputs of the user. webpte does not write them to pass arguments, except in processes that Ray starts: the
two modules `on_ray`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

PREFIX = "WEBPTE_"  # of webpte's own variables
SERVER_PREFIX = "WEBPTE_SERVE_"  # of the options of a server, with its API keys
# What the processes of a server inherit: the system, Python, folders of caches, and settings of GPU drivers. Secrets,
# such as API keys and HF_TOKEN, are not among them: decoders of clients' files run there.
_INHERITED = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "DISPLAY"),
    *("WAYLAND_DISPLAY", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC"),
    *("PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "NUMBER_OF_PROCESSORS"),
}
_INHERITED_PREFIXES = (
    *("LC_", "XDG_", "PYTHON", "LD_", "DYLD_", "MALLOC_", "GLIBC_", "OMP_", "OPENBLAS_", "MKL_", "RUST_", "RAYON_"),
    *("TOKENIZERS_", "VK_", "WGPU_", "MESA_", "LP_", "LIBGL_", "GALLIUM_", "RADV_", "AMD_", "ACO_", "ANV_", "INTEL_"),
    *("NVIDIA_", "CUDA_", "__GL", "__NV", "__VK", "__EGL", "DRI_", "TU_", "ZINK_", "MTL_", "METAL_"),
    PREFIX,
)


def variable(name: str) -> str:
    """Return the value of a variable without surrounding spaces; empty if it is not set."""
    return os.environ.get(name, "").strip()


def variables(names: Iterable[str] = (), prefix: str | None = None) -> dict[str, str]:
    """Return the variables that are set among `names`, and those whose names start with `prefix`."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or (prefix is not None and name.startswith(prefix))
    }


def for_server_process(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process of a server: those that it inherits, with other values of some."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if (name.upper() in _INHERITED or name.upper().startswith(_INHERITED_PREFIXES))
        and not name.upper().startswith(SERVER_PREFIX)
    }
    return {**inherited, **values}


def for_child(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: that of this one, with other values of some variables."""
    return {**os.environ, **values}
