"""The folder of the user's caches: rendered kernels and tuning results. Deleting it is safe."""

from __future__ import annotations

from pathlib import Path

from . import environment


def cache_folder() -> Path:
    """Return `webpte` in XDG_CACHE_HOME if that is set, else in the platform's folder for caches."""
    root = environment.cache_home()
    if root is not None:  # platformdirs reads it on Linux only
        return root / "webpte"
    import platformdirs  # only a process that reads or writes a cache needs it

    return platformdirs.user_cache_path("webpte", appauthor=False)
