"""Build programs of random configs, and compare what they compute with transformers.

`python -m tests.support.harness.random_models 300` runs that many; `--seed SEED` repeats a run, and `--only NUMBER` one
model of it. The gate runs a dozen, with a seed of the day.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.support.harness.built_models import difference
from tests.support.models.exact_weights import make_exact
from tests.support.models.families import Tiny, write_tokenizer
from tests.support.models.random_models import RandomModel, random_model
from webpte.builder import build_program
from webpte.device import acquire
from webpte.llm import LLM

TOLERANCE = 1e-4  # of the largest logit
NEW_TOKENS = 5  # of each answer
SEED_VARIABLE = "WEBPTE_TEST_SEED"


def seed_of_the_day() -> str:
    """Return the seed of the environment, or the date."""
    return os.environ.get(SEED_VARIABLE) or time.strftime("%Y-%m-%d", time.gmtime())


def check(seed: str, number: int) -> None:
    """Raise AssertionError with the seed and the config if a number or a token differs from that of transformers."""
    random = Random(f"{seed} {number}")
    model = random_model(random)
    try:
        with tempfile.TemporaryDirectory() as folder:
            Comparison(model, random, Path(folder)).run()
    except Exception as error:
        raise AssertionError(f"{error!s:.500}\n{SEED_VARIABLE}={seed!r}, number {number}: {model}") from error


class Comparison:
    """A built program beside the model of transformers that it was built from."""

    def __init__(self, model: RandomModel, random: Random, folder: Path) -> None:
        self.random, self.context = random, model.context
        self.reference = make_exact(Tiny("random", "random", model.model_type, model.fields).make())
        self.reference.save_pretrained(folder)
        write_tokenizer(folder / "tokenizer.json", model.fields["vocab_size"])
        sizes: dict[str, Any] = {"max_context": model.context, "max_tokens": model.max_tokens}
        self.path = build_program(folder, folder / "model.pte", **model.options, **sizes)
        self.text = [random.randrange(3, model.fields["vocab_size"]) for _ in range(model.context)]
        self.expected = self._logits(self.text)

    def _logits(self, tokens: list[int]) -> np.ndarray:
        """Return the logits of transformers, which always reads a whole context: its length decides some RoPEs."""
        import torch

        with torch.no_grad():
            row = torch.tensor([[*tokens, *[3] * (self.context - len(tokens))]])
            logits: np.ndarray = self.reference(row, use_cache=False).logits[0, : len(tokens)].numpy()
        return logits

    def run(self) -> None:
        with LLM.load(self.path, max_sequences=2) as llm:
            llm.stop_tokens = frozenset()
            self._pieces(llm)
            self._answers(llm)

    def _pieces(self, llm: LLM) -> None:
        """Compare every position, read at once, rewound, token by token and in a fork."""
        with llm.sequence() as talk:
            self._compare("a whole context", talk.logits(self.text, every=True), 0)
            back = self.random.randrange(1, self.context)
            talk.rewind(back)
            start = self.context - back
            self._compare("rewound", talk.logits(self.text[start : start + 1]), start)
            talk.reset()
            start = self.random.choice([1, 2, 5, 13])
            self._compare("a short prompt", talk.logits(self.text[:start], every=True), 0)
            for at in range(start, start + 3):
                self._compare("a token", talk.logits([self.text[at]]), at)
            with talk.fork() as twin:
                self._compare("a fork", twin.logits(self.text[start + 3 : start + 5], every=True), start + 3)

    def _compare(self, what: str, got: np.ndarray, start: int) -> None:
        error = difference(got, self.expected[start : start + len(got)])
        assert error <= TOLERANCE, f"{what} from position {start}: {error:.1e}"

    def _answers(self, llm: LLM) -> None:
        """Compare greedy answers to prompts of any length that are computed at once."""
        lengths = [1, self.random.randrange(2, self.context - NEW_TOKENS), self.context - NEW_TOKENS]
        prompts = [self.text[:length] for length in lengths]
        answers = [llm.generate(tokens=prompt, max_new_tokens=NEW_TOKENS, temperature=0) for prompt in prompts]
        for prompt, answer in zip(prompts, answers, strict=True):
            answer.result()
            rows = self._logits([*prompt, *answer.tokens])[len(prompt) - 1 : -1]
            regret = rows.max(-1) - rows[np.arange(len(rows)), answer.tokens]
            assert len(answer.tokens) == NEW_TOKENS and (regret <= 2 * TOLERANCE * np.abs(rows).max()).all(), (
                f"answer {answer.tokens} to {len(prompt)} tokens: {regret}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=300)
    parser.add_argument("--seed", default=seed_of_the_day())
    parser.add_argument("--only", type=int, help="the number of a model")
    options = parser.parse_args()
    failed = 0
    gpu = acquire({})  # kept open: programs share its pipelines
    for number in range(options.count) if options.only is None else [options.only]:
        try:
            check(options.seed, number)
        except AssertionError as error:
            failed += 1
            print(f"FAILED: {error}", flush=True)
    gpu.release()
    print(f"seed {options.seed}: {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
