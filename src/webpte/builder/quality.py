"""Measure the quantized model against the float model on the built-in text, block by block on the device.

Both models read the text beside each other. Each has one block in memory at a time, and at the end the head.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints.checkpoint import write_tokenizer_files
from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import Recipe
from ..errors import Error
from ..measure.evaluation.measures import ModelComparison, TextTokens, TextWindow, rolling_windows
from ..measure.evaluation.texts import evaluation_text
from ..progress import OnProgress, ignore
from .blocks import FLOATS, BlockPrograms, TokenProgress
from .context import ProgramSizes
from .recipe import ProgramWeights

MAX_MEASURED_TOKENS = 4096  # of a tokenizer that knows characters only
ROWS_AT_ONCE = 32  # of logits: a row of a large vocabulary is 2 MB in f64
TEXT = "the built-in text"


def measure_quality(
    source: Checkpoint, recipe: Recipe, weights: ProgramWeights, sizes: ProgramSizes, progress: OnProgress = ignore
) -> dict[str, Any]:
    """Return the divergence of a program with these formats and weights from the float model, as JSON values.

    If the model cannot be measured on the text, the result is the reason.
    """
    try:
        windows = _windows(source, sizes.max_context)
    except Error as error:
        return {"left_out": str(error)}
    largest = max(token for window in windows for token in window.tokens)
    if largest >= (vocabulary := source.architecture.vocab_size):
        return {"left_out": f"the tokenizer has token {largest}; the model's vocabulary has {vocabulary} tokens"}
    pieces = [window.tokens[:-1] for window in windows]
    floats = ProgramWeights(source)
    models = [(FLOATS, floats), (recipe, weights)]
    steps = TokenProgress(progress, "quality", (source.architecture.n_layers + 1) * sum(map(len, pieces)))
    with BlockPrograms(source, sizes, keep=2) as blocks:
        texts = [blocks.pieces(pieces, *model) for model in models]
        for number in range(source.architecture.n_layers):
            opened = [blocks.block(number, *model) for model in models]
            for i, piece in enumerate(pieces):
                for block, states in zip(opened, texts, strict=True):
                    states[i] = blocks.run(block, states[i])
                steps.add(len(piece))
        heads = [blocks.head(*model) for model in models]
        comparison = ModelComparison()
        for i, window in enumerate(windows):
            for at in range(window.first - 1, len(pieces[i]), ROWS_AT_ONCE):
                rows = slice(at, min(at + ROWS_AT_ONCE, len(pieces[i])))
                expected, predicted = (
                    blocks.logits(head, states[i].hidden[:, rows]) for head, states in zip(heads, texts, strict=True)
                )
                comparison.add(expected, predicted, np.array(window.tokens[rows.start + 1 : rows.stop + 1]))
            steps.add(len(pieces[i]))
    result = comparison.result()
    estimates = {
        "kl": result.kl,
        "agreement": result.agreement,
        "float_perplexity": result.reference_perplexity,
        "perplexity": result.perplexity,
    }
    about = {"text": TEXT, "tokens": result.tokens, "windows": len(windows), "context": max(map(len, pieces))}
    return {**about, **{name: estimate._asdict() for name, estimate in estimates.items()}}


def _windows(source: Checkpoint, max_context: int) -> list[TextWindow]:
    """Return windows of the built-in text, as `webpte eval` has them for the program."""
    return rolling_windows(_text_tokens(source, evaluation_text()).first(MAX_MEASURED_TOKENS), max_context)


def _text_tokens(source: Checkpoint, text: str) -> TextTokens:
    """Return the tokens of a text, as the program will read it."""
    from ..measure.evaluation.programs import tokens_beside

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.pte"
        write_tokenizer_files(source, target)
        return tokens_beside(target, text, source.bos_id, source.eos_ids)
