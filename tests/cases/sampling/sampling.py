"""What rows may ask of the sampler, alone and side by side."""

from dataclasses import replace

import numpy as np

from tests.support.harness.cases import T, case
from webpte.llm.sampling import RowSamplingParams, pack

# temperature, top_k, top_p, min_p, seed, step
SETTINGS = [
    (0.0, 0, 1.0, 0.0, 0, 0),
    (1.0, 0, 1.0, 0.0, 7, 3),
    (0.7, 5, 1.0, 0.0, 7, 3),
    (1.3, 0, 0.8, 0.0, 11, 0),
    (0.9, 7, 0.6, 0.02, -5, 2),
    (0.5, 1000, 0.05, 0.0, 1, 1),
    (2.0, 0, 1.0, 0.1, 3, 3),
]
CHOICES = [RowSamplingParams(*settings_words) for settings_words in SETTINGS]


def edits(vocabulary, count, seed):
    """Changes of some tokens: penalties, bans and what makes a token certain."""
    random = np.random.default_rng(seed)
    entry = np.empty((count, 3), np.int32)
    entry[:, 0] = random.choice(vocabulary, count, replace=False)
    entry.view(np.float32)[:, 1] = random.choice([1, 1.3, 2, 0.5], count)
    entry.view(np.float32)[:, 2] = random.choice([0, -0.7, 3, -100, 100], count)
    return entry


def mask(vocabulary, share, seed):
    """Bits of the tokens that may be chosen: about a share of all, and one at least."""
    random = np.random.default_rng(seed)
    bits = random.random(-(-vocabulary // 32) * 32) < share  # what is after the vocabulary means nothing
    bits[random.integers(vocabulary)] = True
    return np.packbits(bits, bitorder="little").view(np.int32)


def sample(logits, choices, advance=0, sizes=(1,), **options):
    """Return a call with that many rows, of what the choices ask for; from the first again where they are too few."""
    inputs = {n: pack([choices[i % len(choices)] for i in range(n)]) for n in sizes}
    words = {len(entry[0]): entry[0] for entry in inputs.values()}
    settings_words = T("w", dtype="i32", make=lambda dims: words[dims[0]])
    _, edits, features = inputs[sizes[0]]
    return case("webpte.sample", logits, settings_words, advance, edits, features, n=sizes, w=tuple(words), **options)


def cases(vocabularies, settings_words, sizes, dtype="f32", variant=""):
    for v in vocabularies:
        logits = T("n", v, dtype=dtype, low=-6, high=6)
        for choices, advance in settings_words:
            yield sample(logits, [c(v) if callable(c) else c for c in choices], advance, sizes, variant=variant)


# What is asked for beside the settings. Only the first row has edits: so their number is that of any number of rows.
EDITED = [
    lambda v: replace(CHOICES[0], logit_adjustments=edits(v, 13, 1)),
    lambda v: replace(CHOICES[1], mask=mask(v, 0.3, 2)),
    lambda v: replace(CHOICES[4], mask=mask(v, 0.01, 3)),
    *CHOICES[2:6],
]
EDITED_TOO = [
    lambda v: replace(CHOICES[4], logit_adjustments=edits(v, 10, 4), mask=mask(v, 0.5, 5), top_logprobs=3),
    *EDITED[1:],
]
LIKELIEST = [replace(CHOICES[0], top_logprobs=20), CHOICES[3]]
FEATURES = [(EDITED, 0), (EDITED_TOO, 1), (LIKELIEST, 0)]
TOGETHER = [(CHOICES, 5), (CHOICES[::-1], 0), (CHOICES[1:], 0)]
CASES = [
    entry
    for variant in ("narrow", "wide")
    for entry in cases((13, 1009, 2056), TOGETHER + FEATURES, (7, 3, 1), variant=variant)
]
CASES += cases((13, 2056), [TOGETHER[0], *FEATURES], (5, 2), dtype="f16")
