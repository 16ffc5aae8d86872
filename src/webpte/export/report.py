"""Measure a quantised module against the float module on the built-in text, before it is lowered.

The module is quantised in place. The float module's predictions are therefore computed first and kept in a file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Error
from ..progress import OnProgress, Progress, ignore
from ..text import size
from ..tools.evaluation.measures import Array, ModelComparison, Quality
from ..tools.evaluation.texts import evaluation_text
from ..tools.evaluation.windows import TextWindow, chunks, rolling_windows
from .checkpoint import text_tokens
from .family import Checkpoint, fill

if TYPE_CHECKING:
    import torch

MOST_FLOAT_BYTES = 2 << 30  # of a float model that is measured without being asked to
MOST_KEPT_BYTES = 1 << 30  # of predictions: where the vocabulary is large, fewer tokens are measured
MOST_TOKENS = 4096  # of a tokenizer that knows characters only
TEXT = "the built-in text"
SUFFIX = ".quality.json"  # of the file beside a program
Measure = Callable[["torch.nn.Module"], dict[str, Any] | None]


@contextmanager
def measured(
    module: torch.nn.Module,
    source: Checkpoint,
    max_context: int,
    max_tokens: int,
    asked: bool | None,
    progress: OnProgress = ignore,
) -> Iterator[Measure]:
    """Begun with the float module; what is yielded is called with the module that became of it.

    Without being `asked`, a model is measured unless it is large. What is not measured says why. Weights that are not
    read yet are read whole if it is measured.
    """
    if asked is False:
        yield lambda done: None
        return
    found = _windows(source, max_context)
    reason = found if isinstance(found, str) else _too_large(module) if asked is None else None
    if reason is not None:
        yield lambda done: {"left_out": reason}
        return
    assert not isinstance(found, str)
    fill(module, source)
    with Measuring(module, found, max_tokens - 1, progress) as measuring:
        yield lambda done: measuring.against(done, progress)


def _windows(source: Checkpoint, max_context: int) -> list[TextWindow] | str:
    """Of the built-in text, or why the model cannot be measured on it."""
    vocabulary = source.architecture.vocab_size
    try:
        text = text_tokens(source, evaluation_text())
        if (largest := max(*text.tokens, text.start or 0, 0)) >= vocabulary:
            return f"the tokenizer gives token {largest}, and the model knows {vocabulary}"
        most = min(MOST_TOKENS, MOST_KEPT_BYTES // (4 * vocabulary))
        return rolling_windows(text.first(max(2, most)), max_context)
    except Error as error:
        return str(error)


def _too_large(module: torch.nn.Module) -> str | None:
    nbytes = sum(4 * parameter.numel() for parameter in module.parameters())
    if nbytes <= MOST_FLOAT_BYTES:
        return None
    return f"the float model has {size(nbytes)}, over {size(MOST_FLOAT_BYTES)}; --quality measures it all the same"


class Measuring:
    """What a module predicts, kept in a file while the context lasts; `against` compares another with it."""

    def __init__(
        self, module: torch.nn.Module, found: Sequence[TextWindow], piece: int, progress: OnProgress = ignore
    ) -> None:
        self._windows = found
        self._piece = piece  # tokens that one call takes
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed where the context ends
        for logits, _ in self._predictions(module, "float", progress):
            self._file.write(logits.astype(np.float32).tobytes())

    def __enter__(self) -> Measuring:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def against(self, module: torch.nn.Module, progress: OnProgress = ignore) -> dict[str, Any]:
        """How far the module is from the float one."""
        both = ModelComparison()
        self._file.seek(0)
        for logits, targets in self._predictions(module, "quality", progress):
            kept = np.frombuffer(self._file.read(4 * logits.size), np.float32)
            both.add(kept.reshape(logits.shape), logits, targets)
        return {**self._about(), **_figures(both.result())}

    def _about(self) -> dict[str, Any]:
        scored = sum(window.scored for window in self._windows)
        longest = max(len(window.tokens) - 1 for window in self._windows)
        return {"text": TEXT, "tokens": scored, "windows": len(self._windows), "context": longest}

    def _predictions(self, module: torch.nn.Module, stage: str, progress: OnProgress) -> Iterator[tuple[Array, Array]]:
        """Logits (N, V) of the module and the tokens that came, (N,), piece by piece."""
        total, done = sum(window.scored for window in self._windows), 0
        progress(Progress(stage, 0, total, "tokens"))
        for window in self._windows:
            for logits, targets in eager_predictions(module, window, self._piece):
                yield logits, targets
                done += len(targets)
                progress(Progress(stage, done, total, "tokens"))


def eager_predictions(module: torch.nn.Module, window: TextWindow, piece: int) -> Iterator[tuple[Array, Array]]:
    """Logits (N, V) of a module that is called with tokens and a position, and the tokens that came, (N,)."""
    import torch

    with _restored(module), torch.no_grad():
        for fed, targets, at in chunks(window, piece):
            for start in range(0, len(fed), piece):  # what is known before may be longer than a call
                given = torch.tensor([fed[start : start + piece]])
                logits = module(given, {"input_pos": torch.tensor([at + start])})  # (1, S, V)
            if len(targets):
                yield logits[0].float().numpy(), targets


@contextmanager
def _restored(module: torch.nn.Module) -> Iterator[None]:
    """Logits of every token; and caches as they were afterwards: what stands in them would be exported."""
    full, module.generate_full_logits = module.generate_full_logits, True
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        yield
    finally:
        module.generate_full_logits = full
        for name, buffer in module.named_buffers():
            buffer.copy_(kept[name])


def quality_path(program: Path) -> Path:
    """Beside a program, under its stem."""
    return program.with_name(program.stem + SUFFIX)


def write_quality(program: Path, found: Mapping[str, Any]) -> Path:
    path = quality_path(program)
    path.write_text(json.dumps(dict(found), indent=2) + "\n", encoding="utf-8")
    return path


def read_quality(files: Iterable[Path]) -> dict[str, Any] | None:
    """What an export wrote among these files, if it did."""
    found = next((file for file in files if file.name.endswith(SUFFIX)), None)
    return None if found is None else dict(json.loads(found.read_text(encoding="utf-8")))


def quality_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """For people."""
    if "quantised" in found:
        done = found["quantised"]
        told = ", ".join(f"{count} × {kind}" for kind, count in done["kinds"].items())
        yield f"{done['bits_per_weight']:.2f} bits per weight; layers: {told}"
        yield from done["notes"]
    if "left_out" in found:
        yield f"quality was not measured: {found['left_out']}"
    if "kl" not in found:
        return
    kl, same = found["kl"], found["agreement"]["value"]
    yield f"KL to the float model {kl['value']:.4f} ± {kl['error']:.4f}, the same likeliest token in {same:.1%}"
    before, after = found["float_perplexity"]["value"], found["perplexity"]["value"]
    yield f"perplexity {after:.2f}, of the float model {before:.2f}; on {found['tokens']:,} tokens of {found['text']}"


def _figures(quality: Quality) -> dict[str, Any]:
    found = {
        "kl": quality.kl,
        "agreement": quality.agreement,
        "float_perplexity": quality.reference_perplexity,
        "perplexity": quality.perplexity,
    }
    return {name: estimate._asdict() for name, estimate in found.items()}
