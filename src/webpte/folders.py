"""The folders of the user: caches, which may be deleted; data, which webpte never deletes; and state."""

from __future__ import annotations

from pathlib import Path

from .environment import variable


def cache_folder() -> Path:
    """Return the folder of what webpte can compute or download again. Deleting it is safe."""
    return _folder("XDG_CACHE_HOME", "user_cache_path")


def data_folder() -> Path:
    """Return the folder of what users put there for webpte, such as checkpoints."""
    return _folder("XDG_DATA_HOME", "user_data_path")


def state_folder() -> Path:
    """Return the folder of what sessions leave for later ones, such as the history of the chat."""
    return _folder("XDG_STATE_HOME", "user_state_path")


def kernel_texts_folder() -> Path:
    """Return the folder of rendered kernels."""
    return cache_folder() / "wgsl"


def chat_history_path() -> Path:
    """Return the path of the messages that were typed in `webpte chat`."""
    return state_folder() / "chat-history"


def _folder(name: str, function: str) -> Path:
    """Return `webpte` in the folder that a variable names, else in the platform's folder."""
    if root := variable(name):  # platformdirs reads it on Linux only
        return Path(root) / "webpte"
    import platformdirs  # only a process that reads or writes such a file needs it

    path: Path = getattr(platformdirs, function)("webpte", appauthor=False)
    return path
