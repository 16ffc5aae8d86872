"""A language model in a bundle: many sequences over one set of weights, at few numbers of rows."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..fusion.batching import TOKENS, with_sampled_slots
from ..fusion.llm_rewrites import (
    FEATURE_ADJUSTMENTS,
    FEATURE_TOP_LOGPROBS,
    MAX_LOGIT_ADJUSTMENTS,
    SAMPLING_WORDS,
    mask_words,
    padded_words,
)
from ..llm.metadata import context, read_program_metadata
from ..runtime import Program
from .methods import MethodWriter
from .planned import Call, planned
from .site import Site
from .templates import check_template
from .tokenizers import check_tokenizer

PROMPT_ROWS = (8, 16, 32, 64, 128)
MOST_EDITED = 1024  # tokens of a sequence that have penalties or biases in a page


def decode_rows(sequences: int) -> list[int]:
    """Numbers of sequences that are computed side by side: 1, 2, 4, ... and all of them."""
    return sorted({*(1 << n for n in range(sequences.bit_length())), sequences})


def slot_counts(sequences: int) -> list[int]:
    """Sequences that there are caches for: one, until somebody asks for more."""
    return sorted({1, sequences})


def prompt_rows(most: int) -> list[int]:
    return [rows for rows in PROMPT_ROWS if rows <= most] or [most]


def choice_words(rows: int, vocabulary: int) -> int:
    """Words of `choices` where rows have masks or edits: always as many, so that there is one schedule."""
    edits = min(MOST_EDITED, MAX_LOGIT_ADJUSTMENTS, vocabulary)
    return rows * len(SAMPLING_WORDS) + padded_words(rows * (4 * edits + mask_words(vocabulary)))


def calls(sequences: int, most_rows: int, vocabulary: int) -> Iterator[Call]:
    """All that a page calls: pieces of prompts, and passes that choose a token for each row, with or without what makes
    choices cost more."""
    for rows in prompt_rows(most_rows):
        yield _call(rows, singles=0, picked=1, words=len(SAMPLING_WORDS), features=0)
    for rows in decode_rows(sequences):
        plain, full = rows * len(SAMPLING_WORDS), choice_words(rows, vocabulary)
        for words, features in (
            (plain, 0),
            (full, FEATURE_ADJUSTMENTS),
            (full, FEATURE_ADJUSTMENTS | FEATURE_TOP_LOGPROBS),
        ):
            yield _call(rows, rows, rows, words, features)


def _call(rows: int, singles: int, picked: int, words: int, features: int) -> Call:
    tokens, places = np.zeros((1, rows), np.int64), np.zeros((rows, 2), np.int32)
    return tokens, places, singles, np.zeros(picked, np.int32), 0, np.zeros(words, np.int32), 0, features


def add_language(
    site: Site, methods: MethodWriter, program: Program, tokenizer: Path, sequences: int, fingerprint: str
) -> dict[str, Any]:
    """Plan and write it; what the manifest says of it."""
    metadata = read_program_metadata(program, Path(program.file.path), tokenizer)
    if metadata.template is not None:
        check_template(metadata.template)
    most_rows, vocabulary = _sizes(program)
    for slots in slot_counts(sequences):
        rewrite = functools.partial(with_sampled_slots, slots=slots)
        planner = methods.add(
            "forward",
            fingerprint,
            lambda caps, slots=slots, rewrite=rewrite: planned(  # type: ignore[misc]
                program, "forward", caps, calls(slots, most_rows, vocabulary), rewrite
            ),
            slots,
        )
    return {
        **tokenizer_files(site, metadata.tokenizer, metadata.tokenizer_config),
        "template": metadata.template,
        "eos": list(metadata.eos_ids),
        "bos": metadata.bos_id,
        "context": context(program, planner.plan),
        "vocabulary": vocabulary,
        "sequences": sequences,
        "prompt_rows": prompt_rows(most_rows),
        "decode_rows": decode_rows(sequences),
        "choice_words": {str(rows): choice_words(rows, vocabulary) for rows in decode_rows(sequences)},
    }


def _sizes(program: Program) -> tuple[int, int]:
    """The most rows of a pass, and the tokens that there are."""
    graph = program.graph("forward")
    return graph.tensor(graph.inputs[TOKENS]).dims[1], graph.tensor(graph.outputs[0]).dims[-1]


def tokenizer_files(site: Site, tokenizer: Path, config: Path | None) -> dict[str, Any]:
    """What the manifest calls the files that text is read by."""
    data = tokenizer.read_bytes()
    check_tokenizer(data)
    return {
        "tokenizer": site.add(data, "json"),
        "tokenizer_config": None if config is None else site.add(config.read_bytes(), "json"),
    }
