"""Pictures of benchmarks. matplotlib is not among our dependencies: it is asked for where a picture is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InputError, UnsupportedError


def require_matplotlib() -> Any:
    """Its Figure class, which draws without a screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError("plots need the matplotlib package: pip install matplotlib") from error
    return Figure


def plot_bench(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw a report of `bench_file`: rates by context for a language model, times by size for others."""
    speaks = report["kind"] == "language model"
    figure = require_matplotlib()(figsize=(11, 4.5) if speaks else (7, 4.5), layout="constrained")
    for axes in _language_model(figure, report) if speaks else _sizes(figure, report):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    machine = report["machine"]
    title = f"{os.path.basename(report['file'])} on {machine['adapter']}"
    figure.suptitle(f"{title}\nwebpte {machine['versions']['webpte']}, {machine['date'][:10]}", fontsize=9)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:  # ValueError: a kind of file that matplotlib does not write
        raise InputError(f"{os.fspath(path)} cannot be written: {error}") from error


def _language_model(figure: Any, report: Mapping[str, Any]) -> list[Any]:
    left, right = figure.subplots(1, 2)
    prefill, decode = report["prefill"], report["decode"]
    left.plot([p["tokens"] for p in prefill], [p["tokens_per_second"] for p in prefill], "o-")
    left.set(title="prefill", xlabel="tokens in the prompt", ylabel="tokens per second")
    contexts = [p["context"] for p in decode]
    right.plot(contexts, [p["tokens_per_second"] for p in decode], "o-", label="one token per submit")
    right.plot(contexts, [p["paced_tokens_per_second"] for p in decode], "s--", label="as generate paces itself")
    right.set(title="decode", xlabel="tokens in the context", ylabel="tokens per second")
    right.legend()
    return [left, right]


def _sizes(figure: Any, report: Mapping[str, Any]) -> list[Any]:
    axes = figure.subplots()
    elements = [sum(int(np.prod(shape)) for shape in point["shapes"]) for point in report["sizes"]]
    axes.plot(elements, [point["median"] * 1e3 for point in report["sizes"]], "o-")
    axes.set(title="calls", xlabel="elements of all inputs", ylabel="milliseconds, median")
    return [axes]
