"""Measure a quantized module against the float module on the built-in text, before it is lowered.

The module is quantized in place. The float module's predictions are therefore computed first and kept in a file.
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

from ..builder.context import ProgramSizes
from ..checkpoints.checkpoint import write_tokenizer_files
from ..checkpoints.family import Checkpoint
from ..errors import Error
from ..measure.evaluation.measures import ModelComparison, Quality, TextTokens, TextWindow, chunks, rolling_windows
from ..measure.evaluation.texts import evaluation_text
from ..progress import OnProgress, Progress, ignore
from ..text import size
from ..typing import Array
from .decoder_module import fill

if TYPE_CHECKING:
    import torch

MAX_FLOAT_BYTES = 2 << 30  # of a float model that is measured by default
MAX_PREDICTION_BYTES = 1 << 30  # of predictions: fewer tokens are measured where the vocabulary is large
MAX_WINDOW_TOKENS = 1024  # that a prediction reads: a longer context takes longer and hardly changes the figures
MAX_MEASURED_TOKENS = 4096  # of a tokenizer that knows characters only
TEXT = "the built-in text"
SUFFIX = ".quality.json"  # of the file beside a program
Measure = Callable[["torch.nn.Module"], dict[str, Any] | None]


@contextmanager
def quality_measure(
    module: torch.nn.Module,
    source: Checkpoint,
    sizes: ProgramSizes,
    requested: bool | None,
    progress: OnProgress = ignore,
) -> Iterator[Measure]:
    """Enter with the float module, and yield a function to call with the quantized module.

    If `requested` is None, a model is measured unless it is large. A model that is not measured gives the reason.
    Weights that are not read yet are read if it is measured.
    """
    if requested is False:
        yield lambda quantized: None
        return
    windows = _windows(source, min(MAX_WINDOW_TOKENS, sizes.max_context))
    reason = windows if isinstance(windows, str) else _too_large(module) if requested is None else None
    if reason is not None:
        yield lambda quantized: {"left_out": reason}
        return
    assert not isinstance(windows, str)
    fill(module, source)
    with QualityMeasurement(module, windows, sizes.max_tokens - 1, progress) as measurement:
        yield lambda quantized: measurement.compare(quantized, progress)


def _windows(source: Checkpoint, max_context: int) -> list[TextWindow] | str:
    """Return windows of the built-in text, or the reason why the model cannot be measured on it."""
    vocabulary = source.architecture.vocab_size
    try:
        text = text_tokens(source, evaluation_text())
        if (largest := max(*text.tokens, text.start or 0, 0)) >= vocabulary:
            return f"the tokenizer has token {largest}; the model's vocabulary has {vocabulary} tokens"
        count = min(MAX_MEASURED_TOKENS, MAX_PREDICTION_BYTES // (4 * vocabulary))
        return rolling_windows(text.first(max(2, count)), max_context)
    except Error as error:
        return str(error)


def text_tokens(source: Checkpoint, text: str) -> TextTokens:
    """Return the tokens of a text, as the exported program will read it."""
    from ..measure.evaluation.programs import tokens_beside

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.pte"
        write_tokenizer_files(source, target)
        return tokens_beside(target, text, source.bos_id, source.eos_ids)


def _too_large(module: torch.nn.Module) -> str | None:
    nbytes = sum(4 * parameter.numel() for parameter in module.parameters())
    if nbytes <= MAX_FLOAT_BYTES:
        return None
    return (
        f"the float model has {size(nbytes)}, over the limit of {size(MAX_FLOAT_BYTES)}; pass --quality to measure it"
    )


class QualityMeasurement:
    """Keep the predictions of a module in a file while the context lasts, and compare another module with them."""

    def __init__(
        self, module: torch.nn.Module, windows: Sequence[TextWindow], piece: int, progress: OnProgress = ignore
    ) -> None:
        self._windows = windows
        self._piece = piece  # tokens that one call takes
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed where the context ends
        for logits, _ in self._predictions(module, "float", progress):
            self._file.write(logits.astype(np.float32).tobytes())

    def __enter__(self) -> QualityMeasurement:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def compare(self, module: torch.nn.Module, progress: OnProgress = ignore) -> dict[str, Any]:
        """Return the divergence of a module from the float module, as JSON values."""
        comparison = ModelComparison()
        self._file.seek(0)
        for logits, targets in self._predictions(module, "quality", progress):
            reference = np.frombuffer(self._file.read(4 * logits.size), np.float32)
            comparison.add(reference.reshape(logits.shape), logits, targets)
        return {**self._about(), **_figures(comparison.result())}

    def _about(self) -> dict[str, Any]:
        scored = sum(window.scored for window in self._windows)
        longest = max(len(window.tokens) - 1 for window in self._windows)
        return {"text": TEXT, "tokens": scored, "windows": len(self._windows), "context": longest}

    def _predictions(self, module: torch.nn.Module, stage: str, progress: OnProgress) -> Iterator[tuple[Array, Array]]:
        """Yield logits (N, V) of the module and the next tokens (N,), piece by piece."""
        total, done = sum(window.scored for window in self._windows), 0
        progress(Progress(stage, 0, total, "tokens"))
        for window in self._windows:
            for logits, targets in eager_predictions(module, window, self._piece):
                yield logits, targets
                done += len(targets)
                progress(Progress(stage, done, total, "tokens"))


def eager_predictions(module: torch.nn.Module, window: TextWindow, piece: int) -> Iterator[tuple[Array, Array]]:
    """Yield logits (N, V) of a module that takes tokens and a position, and the next tokens (N,)."""
    import torch

    with _restored(module), torch.no_grad():
        for fed, targets, at in chunks(window, piece):
            for start in range(0, len(fed), piece):  # the context may be longer than one call
                tokens = torch.tensor([fed[start : start + piece]])
                logits = module(tokens, {"input_pos": torch.tensor([at + start])})  # (1, S, V)
            if len(targets):
                yield logits[0].float().numpy(), targets


@contextmanager
def _restored(module: torch.nn.Module) -> Iterator[None]:
    """Return logits of every token inside; restore the caches afterwards, because their values are exported."""
    full, module.generate_full_logits = module.generate_full_logits, True
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        yield
    finally:
        module.generate_full_logits = full
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])


def quality_path(program: Path) -> Path:
    """Return the path of the quality file beside a program."""
    return program.with_name(program.stem + SUFFIX)


def write_quality(program: Path, quality: Mapping[str, Any]) -> Path:
    path = quality_path(program)
    path.write_text(json.dumps(dict(quality), indent=2) + "\n", encoding="utf-8")
    return path


def read_quality(files: Iterable[Path]) -> dict[str, Any] | None:
    """Return the contents of the quality file among these files, if there is one."""
    path = next((file for file in files if file.name.endswith(SUFFIX)), None)
    return None if path is None else dict(json.loads(path.read_text(encoding="utf-8")))


def quality_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    """Yield the contents of a quality file as lines of text."""
    if "quantized" in quality:
        layers = quality["quantized"]
        formats = ", ".join(f"{count} × {kind}" for kind, count in layers["kinds"].items())
        yield f"{layers['bits_per_weight']:.2f} bits per weight; layers: {formats}"
        yield from layers["notes"]
    if "left_out" in quality:
        yield f"quality was not measured: {quality['left_out']}"
    if "kl" not in quality:
        return
    kl, same = quality["kl"], quality["agreement"]["value"]
    yield f"KL divergence from the float model {kl['value']:.4f} ± {kl['error']:.4f}; same top token in {same:.1%}"
    before, after = quality["float_perplexity"]["value"], quality["perplexity"]["value"]
    yield f"perplexity {after:.2f} (float model {before:.2f}) on {quality['tokens']:,} tokens of {quality['text']}"


def _figures(quality: Quality) -> dict[str, Any]:
    estimates = {
        "kl": quality.kl,
        "agreement": quality.agreement,
        "float_perplexity": quality.reference_perplexity,
        "perplexity": quality.perplexity,
    }
    return {name: estimate._asdict() for name, estimate in estimates.items()}
