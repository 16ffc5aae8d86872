"""Descriptions of paths that cannot be opened, for messages: what a folder is, and similar names."""

from __future__ import annotations

import os

from ..text import close_matches


def folder_text(path: str) -> str:
    """Return what a folder is that is not a bundle, and what to do with it."""
    names = sorted(os.listdir(path)) if os.access(path, os.R_OK) else []
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return f"a checkpoint's folder. Make a program of it: {export_line(path)}."
    programs = [name for name in names if name.endswith(".pte")]
    if programs:
        return f"a folder. Name the program in it: {', '.join(os.path.join(path, name) for name in programs)}."
    weights = [name for name in names if name.endswith(".gguf")]
    if weights:
        return f"a folder. Make a program of what it holds: {export_line(os.path.join(path, weights[0]))}."
    return "a folder. Name a .pte file, or a folder that webpte bundle wrote."


def export_line(path: str) -> str:
    """The command that makes a program of a checkpoint."""
    stem = os.path.splitext(os.path.basename(path.rstrip(os.sep)))[0] or "model"
    return f"webpte export {path} -o {stem}.pte"


def similar_paths(path: str) -> str:
    """For a path that is not there: `; did you mean model.pte?`, if the folder has something of that kind."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")[:10_000]
    except OSError:
        return f"; there is no folder {folder}" if folder and not os.path.isdir(folder) else ""
    stem, suffix = os.path.splitext(name)
    close = [n for n in close_matches(name, names, 3, 0.7) if os.path.splitext(n)[1] == suffix]
    close = close or [n for n in sorted(names) if n in (f"{stem}.pte", f"{stem}.gguf", name + suffix, name + ".pte")]
    others = sorted(n for n in names if suffix and n.endswith(suffix))
    if close:
        return f"; did you mean {' or '.join(os.path.join(folder, n) for n in close)}?"
    if 0 < len(others) <= 4:
        return f"; {folder or 'this folder'} has {', '.join(others)}"
    return ""
