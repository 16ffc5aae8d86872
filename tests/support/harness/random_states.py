"""Random operations on the slots of real models, whose answers are compared with transformers.

`python -m tests.support.harness.random_states 2000` runs that many sequences of operations: a quarter each over full
caches (Qwen 3), windows (Gemma 3), short convolutions (LFM2) and the gated delta rule (Qwen3.5). It prints which seeds
are done: to continue a run that ended, give the next as `--seed`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.studies.families.measuring import TOLERANCE
from tests.support.harness.devices import destroy_device
from tests.support.models.families import VOCABULARY, first
from webpte.builder import build_program
from webpte.llm import LLM

FAMILIES = ("qwen3", "gemma3", "lfm2", "qwen3_5")
CONTEXT, MAX_TOKENS = 120, 24  # the context exceeds the inputs that a convolution keeps
OPERATIONS = 8
LOSSES = 0.005  # of the operations: another device compiles every kernel again
BATCH = 24  # answers that transformers computes at once
REPORTED = 50  # sequences
NAMES = (
    "ask",
    "ask",
    "ask",
    "read",
    "finish",
    "leave",
    "say",
    "logits",
    "fork",
    "rewind",
    "drop",
    "snapshot",
    "restore",
)


class Check(NamedTuple):
    """Tokens, and what is required of the logits (T, V) after each of them."""

    tokens: list[int]
    verify: Callable[[np.ndarray[Any, Any]], None]
    label: str


class RealModel:
    """A small model on the device, and its logits by transformers.

    Checks wait until there is a batch of them: most of the time of a call of transformers does not depend on its size.
    """

    def __init__(self, llm: LLM, reference: Any) -> None:
        self.llm = llm
        self.label = ""  # of the checks that follow
        self._reference = reference
        self._checks: list[Check] = []

    def check_answer(self, prompt: list[int], answer: list[int]) -> None:
        """Require that each token of a greedy answer has the largest logit, within the tolerance."""

        def verify(all_logits: np.ndarray[Any, Any]) -> None:
            logits = all_logits[len(prompt) - 1 :]
            chosen = logits[np.arange(len(answer)), answer]
            gaps = (logits.max(-1) - chosen) / np.abs(logits).max(-1)
            right = gaps <= 2 * TOLERANCE
            assert right.all(), f"token {int(right.argmin())} of {answer} after {prompt} is not the best"

        if answer:
            self._add([*prompt, *answer[:-1]], verify)

    def check_logits(self, tokens: list[int], got: np.ndarray[Any, Any]) -> None:
        def verify(all_logits: np.ndarray[Any, Any]) -> None:
            expected = all_logits[-1:]
            error = np.abs(got - expected).max() / np.abs(expected).max()
            assert error <= TOLERANCE, f"logits after {tokens} differ by {error:.1e}"

        self._add(tokens, verify)

    def _add(self, tokens: list[int], verify: Callable[[np.ndarray[Any, Any]], None]) -> None:
        self._checks.append(Check(tokens, verify, self.label))
        if len(self._checks) >= BATCH:
            self.verify()

    def verify(self) -> None:
        """Make the checks that wait. What follows a text changes no logits of it."""
        import torch

        checks, self._checks = self._checks, []
        longest = max((len(check.tokens) for check in checks), default=0)
        rows = [[*check.tokens, *[0] * (longest - len(check.tokens))] for check in checks]
        if not rows:
            return
        with torch.no_grad():
            logits = self._reference(torch.tensor(rows)).logits.numpy()  # (B, T, V)
        for check, each in zip(checks, logits, strict=True):
            try:
                check.verify(each[: len(check.tokens)])
            except AssertionError as error:
                error.add_note(check.label)
                raise


class Operations:
    """One sequence of operations: answers at once, sequences that are kept, and a device that is lost."""

    def __init__(self, model: RealModel, seed: int, folder: Path, losses: float) -> None:
        self._model, self._folder, self._losses = model, folder, losses
        self._random = np.random.default_rng(seed)
        self._text = self._tokens(model.llm.capacity // 2)  # prompts share its beginning
        self._answers: list[tuple[list[int], Any]] = []
        self._sequences = [model.llm.sequence()]
        self._snapshots: list[tuple[Path, tuple[int, ...]]] = []
        self.done: list[str] = []

    def run(self) -> None:
        for _ in range(OPERATIONS):
            name = "lose" if self._random.random() < self._losses else str(self._random.choice(NAMES))
            self.done.append(name)
            operation: Callable[[], None] = getattr(self, f"_{name}")
            operation()
        while self._answers:
            self._finish()
        for sequence in self._sequences:
            if sequence.remaining:
                self._check_sequence(sequence)
            sequence.close()

    def _tokens(self, count: int) -> list[int]:
        return [int(token) for token in self._random.integers(3, VOCABULARY, count)]

    def _number(self, low: int, high: int) -> int:
        return int(self._random.integers(low, high + 1))

    def _any_sequence(self) -> Any:
        return self._sequences[self._number(0, len(self._sequences) - 1)]

    def _prompt(self) -> list[int]:
        start = self._text[: self._number(0, len(self._text))]
        rest = self._tokens(self._number(1, 6)) * self._number(1, 4)  # what repeats itself is drafted
        return [*start, *rest][: self._model.llm.capacity - 1]

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"max_new_tokens": self._number(1, 24), "temperature": 0}
        settings["tokens_per_submit"] = (None, 1, 3, 8)[self._number(0, 3)]
        settings["speculate"] = (None, True, False)[self._number(0, 2)]
        return settings

    def _ask(self) -> None:
        prompt = self._prompt()
        answer = self._model.llm.generate(tokens=prompt, **self._settings())
        answer.start()
        self._answers.append((prompt, answer))

    def _read(self) -> None:
        if self._answers:
            _, answer = self._answers[self._number(0, len(self._answers) - 1)]
            for _ in range(self._number(1, 6)):
                next(answer, None)

    def _finish(self) -> None:
        if self._answers:
            prompt, answer = self._answers.pop(self._number(0, len(self._answers) - 1))
            answer.result()
            self._model.check_answer(prompt, list(answer.tokens))

    def _leave(self) -> None:
        if self._answers:
            prompt, answer = self._answers.pop(self._number(0, len(self._answers) - 1))
            answer.close()
            self._model.check_answer(prompt, list(answer.tokens))

    def _say(self) -> None:
        """Let a sequence answer a prompt that may share the beginning of its text."""
        sequence = self._any_sequence()
        prompt = [*sequence.tokens[: self._number(0, sequence.position)], *self._tokens(self._number(1, 9))]
        if len(prompt) < self._model.llm.capacity:
            answer = sequence.generate(tokens=prompt, **self._settings())
            answer.result()
            self._model.check_answer(prompt, list(answer.tokens))

    def _logits(self) -> None:
        sequence = self._any_sequence()
        if tokens := self._tokens(min(self._number(1, 40), sequence.remaining)):
            got = sequence.logits(tokens)
            self._model.check_logits(list(sequence.tokens), got)

    def _fork(self) -> None:
        self._sequences.append(self._any_sequence().fork())

    def _rewind(self) -> None:
        sequence = self._any_sequence()
        sequence.rewind(self._number(0, sequence.position))

    def _drop(self) -> None:
        if len(self._sequences) > 1:
            self._sequences.pop(self._number(0, len(self._sequences) - 1)).close()

    def _snapshot(self) -> None:
        sequence = self._any_sequence()
        path = self._folder / f"snapshot-{len(self._snapshots)}"
        sequence.snapshot(path)
        self._snapshots.append((path, sequence.tokens))

    def _restore(self) -> None:
        if self._snapshots:
            path, tokens = self._snapshots[self._number(0, len(self._snapshots) - 1)]
            sequence = self._any_sequence()
            sequence.restore(path)
            assert sequence.tokens == tokens

    def _lose(self) -> None:
        destroy_device(self._model.llm.engine.runner.method)

    def _check_sequence(self, sequence: Any) -> None:
        got = sequence.logits([7])
        self._model.check_logits(list(sequence.tokens), got)


def run_operations(model: RealModel, seeds: Iterable[int], losses: float = 0.0) -> Counter[str]:
    """Run sequences of operations, and count what they did."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            operations = Operations(model, seed, Path(folder), losses)
            model.label = f"seed {seed}"
            try:
                operations.run()
            except BaseException as error:
                error.add_note(f"seed {seed}: {', '.join(operations.done)}")
                raise
            counts.update(operations.done)
        model.verify()
    return counts


def run_family(family: str, seeds: range) -> Counter[str]:
    """Build a program of a family, and run operations on it."""
    with tempfile.TemporaryDirectory() as folder:
        path, counts = Path(folder) / "model.pte", Counter[str]()
        reference = first(family).save(Path(folder))
        build_program(Path(folder), path, max_context=CONTEXT, max_tokens=MAX_TOKENS, quantize=None)
        with LLM.load(path, max_sequences=3, recover=True) as llm:
            llm.engine.background = False  # the same operations give the same steps
            llm.stop_tokens = frozenset()
            model = RealModel(llm, reference)
            for start in range(seeds.start, seeds.stop, REPORTED):
                part = range(start, min(start + REPORTED, seeds.stop))
                counts += run_operations(model, part, LOSSES)
                print(f"{family}: seeds {part.start} to {part.stop - 1} right", flush=True)
            stats = llm.stats
            return counts + Counter(steps=stats.steps, evictions=stats.evictions, preemptions=stats.preemptions)


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(prog="python -m tests.support.harness.random_states", description=__doc__)
    parser.add_argument("count", type=int, help="sequences of operations, over all families")
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    parser.add_argument("--only", nargs="+", metavar="FAMILY", choices=FAMILIES, default=FAMILIES)
    options = parser.parse_args()
    each = -(-options.count // len(options.only))
    torch.set_num_threads(1)  # for models this small, others only wait for each other
    for family in options.only:
        started = time.process_time()
        counts = run_family(family, range(options.seed, options.seed + each))
        listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        print(f"{family}: {each} sequences in {time.process_time() - started:.0f} s of CPU: {listed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
