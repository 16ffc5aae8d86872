"""A language model's runner in NumPy: what comes next is a hash of what the cache holds, so every mistake shows.

A row in the wrong slot, at the wrong position, copied too short or forgotten changes all tokens after it. Costs, lost
devices and interrupts can be arranged.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from webpte.errors import DeviceLost, OutOfMemory
from webpte.llm import LLM
from webpte.llm.context import ContextLimit
from webpte.llm.engine.core import EngineCore
from webpte.llm.engine.kv_slots import CacheWindow
from webpte.llm.engine.runner import BatchToken, SampleRow
from webpte.llm.prompts import SpecialTokens
from webpte.llm.sampling import RowSamplingParams, SampledToken
from webpte.llm.text_model import TextModel

VOCABULARY = 97
EMPTY = -7
SNAPSHOT = 1 << 16  # bytes


class FakeRunner:
    """Slots of `capacity` tokens, at first one, at most `max_slots`."""

    batching_unsupported_reason = None
    cache_window: CacheWindow | None = None
    method: Any = None
    embedding_blocks = 0
    embedding_rows = 3
    num_checkpoints = 0

    def __init__(self, max_slots: int = 4, capacity: int = 64, max_batch_tokens: int = 16) -> None:
        self.max_slots = max_slots
        self.capacity = capacity
        self.max_batch_tokens = max_batch_tokens
        self.max_samples = min(max_batch_tokens, 8)
        self.max_draft_tokens = self.max_samples - 1
        self.max_logit_adjustments = 1 << 20
        self.cache = np.full((1, capacity), EMPTY)
        self.recoveries = 0
        self.lost = False
        self.passes: list[list[BatchToken]] = []
        self.encoded: list[tuple[Any, ...]] = []
        self.embeddings: dict[int, int] = {}
        self.warmed: list[tuple[int, int, bool]] = []
        self.copies: list[tuple[int, int, int]] = []
        self.before: Callable[[], None] = lambda: None  # called before whatever touches the device
        self.after: Callable[[], None] = lambda: None
        self.recalls: int | None = None  # last tokens alone decide what comes next: it talks in circles
        self.bad: Callable[[list[int]], bool] = lambda tokens: False  # whose logits are NaN
        self.now = 0.0  # seconds
        self.cost: Callable[[int], float] = lambda rows: 0.001
        self.memory = 1 << 30  # slots that fit

    @property
    def num_slots(self) -> int:
        return len(self.cache)

    def run(self, rows: Sequence[BatchToken], picks: Sequence[SampleRow]) -> list[SampledToken]:
        results = self.computed(rows, picks)
        self.now += self.cost(len(rows))
        self.after()
        return results

    def computed(self, rows: Sequence[BatchToken], picks: Sequence[SampleRow]) -> list[SampledToken]:
        """Run a step that takes no time."""
        self._touch()
        assert 0 < len(rows) <= self.max_batch_tokens and len(picks) <= self.max_samples
        self._check_order(rows)
        self.passes.append(list(rows))
        for token, slot, position, *_ in rows:
            assert -self.embedding_blocks * self.embedding_rows <= token < VOCABULARY
            self.cache[slot, position] = self._content(token)
        return [self._chosen(rows[pick.row], pick.params) for pick in picks]

    def _content(self, token: int) -> int:
        return token if token >= 0 else self.embeddings[-1 - token]

    def start_steps(self, rows: Sequence[BatchToken], picks: Sequence[SampleRow], count: int) -> FakeSteps:
        assert [pick.row for pick in picks] == list(range(len(rows)))
        return FakeSteps(self, rows, picks, count)

    def logits(self, rows: Sequence[BatchToken], count: int = 1) -> np.ndarray[Any, Any]:
        self.run(rows, ())
        seeds = [zlib.crc32(self._prefix(row).tobytes()) for row in rows[len(rows) - count :]]
        return np.stack([np.random.default_rng(seed).standard_normal(VOCABULARY) for seed in seeds])

    def encode(self, arguments: tuple[Any, ...], block: int) -> None:
        """Keep a row for each argument; a token reads what it is."""
        self._touch()
        self.encoded.append(arguments)
        self.passes.append([])
        self.embeddings |= {block * self.embedding_rows + number: row for number, row in enumerate(arguments)}

    def copy(self, source: int, target: int, count: int, checkpoint: int | None = None) -> None:
        self._touch()
        assert source != target
        self.copies.append((source, target, count))
        self.cache[target] = EMPTY
        self.cache[target, :count] = self.cache[source, :count]
        self.after()

    def save(self, slot: int, checkpoint: int) -> None:
        raise AssertionError("there are no checkpoints")

    def restore(self, slot: int, checkpoint: int) -> None:
        raise AssertionError("there are no checkpoints")

    def warm_up(self, num_tokens: int, num_samples: int, constrained: bool) -> None:
        self._touch()
        assert num_tokens <= self.max_batch_tokens and num_samples <= self.max_samples
        self.warmed.append((num_tokens, num_samples, constrained))
        if self.max_slots == 1:
            self.cache[:] = EMPTY

    def grow(self, num_slots: int) -> None:
        self._touch()
        assert self.num_slots < num_slots <= self.max_slots
        if num_slots > self.memory:
            raise OutOfMemory(f"{num_slots} slots", num_slots, self.memory)
        self.cache = np.concatenate([self.cache, np.full((num_slots - self.num_slots, self.capacity), EMPTY)])

    def sizes(self, count: int) -> list[int]:
        return [8 * count]

    def read(self, slot: int, count: int) -> list[memoryview]:
        self._touch()
        return [memoryview(self.cache[slot, :count].tobytes())]

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        self._touch()
        self.cache[slot, :count] = np.frombuffer(pieces[0], np.int64)

    def lose(self) -> None:
        self.lost = True

    def recover(self) -> bool:
        result, self.lost = self.lost, False
        if result:
            self.cache[:] = EMPTY
            self.recoveries += 1
        return result

    def _touch(self) -> None:
        self.before()
        if self.lost:
            raise DeviceLost("the device is gone")

    def _check_order(self, rows: Sequence[BatchToken]) -> None:
        ends: dict[int, int] = {}
        for before, row in zip([None, *rows], rows, strict=False):
            if before is not None and before.slot == row.slot:
                assert row.position == before.position + 1
            else:
                assert row.slot not in ends, "rows of a slot stand together"
            ends[row.slot] = row.position
            assert 0 <= row.slot < self.num_slots and 0 <= row.position < self.capacity

    def _prefix(self, row: BatchToken) -> np.ndarray[Any, Any]:
        result = self.cache[row.slot, : row.position + 1]
        assert (result != EMPTY).all(), "something was never computed"
        return result

    def _chosen(self, row: BatchToken, choice: RowSamplingParams) -> SampledToken:
        prefix = self._prefix(row)
        if self.bad(prefix.tolist()):
            return SampledToken(-1, 0.0)
        return SampledToken(expected(prefix.tolist(), choice, self.recalls), -1.0)


class FakeSteps:
    """Steps that are computed when they are started, as a queue would, and take their time when they are read."""

    def __init__(self, runner: FakeRunner, rows: Sequence[BatchToken], picks: Sequence[SampleRow], count: int) -> None:
        self._runner = runner
        self._steps: list[list[SampledToken]] = []
        for _ in range(count):
            self._steps.append(runner.computed(rows, picks))
            tokens = [max(0, sampled.token) for sampled in self._steps[-1]]
            rows = [BatchToken(t, row.slot, row.position + 1) for t, row in zip(tokens, rows, strict=True)]
            picks = [SampleRow(pick.row, replace(pick.params, step=pick.params.step + 1)) for pick in picks]
        self._next = rows, picks

    def follow(self, count: int) -> FakeSteps | None:
        return FakeSteps(self._runner, *self._next, count)

    def take(self) -> list[list[SampledToken]]:
        for _ in self._steps:
            self._runner.now += self._runner.cost(len(self._next[0]))
            self._runner.after()
        return self._steps

    def discard(self) -> None:
        pass


class ForgetfulRunner(FakeRunner):
    """One whose state holds the latest positions only, each in the row that a ring of `held` has for it; or, if that is
    none, a state that is that of the last token.

    A token that is computed where positions that it needs are gone, or are those of another text, is an error.
    """

    def __init__(
        self,
        window: CacheWindow,
        max_slots: int = 4,
        capacity: int = 64,
        max_batch_tokens: int = 16,
        num_checkpoints: int = 0,
    ) -> None:
        super().__init__(max_slots, capacity, max_batch_tokens)
        self.cache_window: CacheWindow = window
        self._states: dict[int, dict[int, list[int]]] = {}  # by slot and row: all tokens up to the one that is there
        self.num_checkpoints = num_checkpoints
        self.saved: dict[int, dict[int, list[int]]] = {}  # states by checkpoint

    def _check_order(self, rows: Sequence[BatchToken]) -> None:
        """Comes before a pass writes."""
        super()._check_order(rows)
        for slot in {row.slot for row in rows}:
            self._advance(slot, [row for row in rows if row.slot == slot])

    def _advance(self, slot: int, rows: Sequence[BatchToken]) -> None:
        first, held = rows[0].position, self.cache_window.held
        text = [*self.cache[slot, :first].tolist(), *(self._content(row.token) for row in rows)]
        state = self._states.setdefault(slot, {})
        if first == 0:
            state.clear()
        if held == 0:
            assert state.get(0, []) == text[:first], f"slot {slot} is not at {first}"
            state[0] = text
            return
        for row in rows:
            state[row.position % held] = text[: row.position + 1]
        for before in range(max(0, first - self.cache_window.needed), first):
            assert state.get(before % held) == text[: before + 1], f"slot {slot} has forgotten {before}"

    def copy(self, source: int, target: int, count: int, checkpoint: int | None = None) -> None:
        super().copy(source, target, count)
        self._states[target] = dict(self._states[source] if checkpoint is None else self.saved[checkpoint])

    def save(self, slot: int, checkpoint: int) -> None:
        self._touch()
        assert 0 <= checkpoint < self.num_checkpoints
        self.saved[checkpoint] = dict(self._states[slot])

    def restore(self, slot: int, checkpoint: int) -> None:
        self._touch()
        self._states[slot] = dict(self.saved[checkpoint])

    def read(self, slot: int, count: int) -> list[memoryview]:
        return [*super().read(slot, count), memoryview(pickle.dumps(self._states[slot]).ljust(SNAPSHOT))]

    def sizes(self, count: int) -> list[int]:
        return [*super().sizes(count), SNAPSHOT]

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        super().write(slot, count, pieces)
        self._states[slot] = pickle.loads(pieces[1])


def expected(tokens: Sequence[int], choice: RowSamplingParams, recalls: int | None = None) -> int:
    """Return the token that follows."""
    values = list(tokens) if recalls is None else list(tokens)[-recalls:]
    edits = choice.logit_adjustments.tobytes() if choice.logit_adjustments is not None else b""
    step = choice.step if recalls is None else 0
    asked = astuple(replace(choice, logit_adjustments=None, mask=None, step=step, logprob=False, top_logprobs=0))
    number = zlib.crc32(repr((values, asked, edits)).encode())
    if choice.mask is None:
        return number % VOCABULARY
    allowed = np.flatnonzero(np.unpackbits(choice.mask.view(np.uint8), bitorder="little"))
    return int(allowed[number % len(allowed)])


class FakeTokenizer:
    """A character for a token."""

    max_token_bytes = 4

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        return [ord(character) % VOCABULARY for character in text]

    def mark_special_tokens(self, value: Any) -> tuple[Any, bool]:
        return value, False

    def decode(self, tokens: Sequence[int], *, specials: bool = False) -> str:
        return "".join(chr(0x4E00 + token) for token in tokens)


class FakeLLM(LLM):
    """A model over a fake runner. Its text is nonsense; its stop tokens are none."""

    def __init__(
        self, runner: FakeRunner | None = None, *, recover: bool = False, background: bool = False, **options: Any
    ) -> None:
        """Without the engine's thread, unless a test is about it: then the same calls give the same steps."""
        self.runner = runner = runner or FakeRunner()
        self._program: Any = SimpleNamespace(recover=lambda progress, cancel: runner.recover(), close=lambda: None)
        self.path = ""
        self.capacity = runner.capacity
        tokenizer: Any = FakeTokenizer()
        limit = ContextLimit(runner.capacity)
        self.text_model = TextModel(
            tokenizer, SpecialTokens(), None, frozenset(), vocabulary=VOCABULARY, context_limit=limit
        )
        recovered = self.recover if recover else None
        self.engine = EngineCore(runner, recover=recovered, clock=lambda: runner.now, background=background, **options)

    @property
    def fingerprint(self) -> str:
        return "f" * 64


def alone(
    prompt: Sequence[int], count: int, capacity: int = 64, recalls: int | None = None, **settings: Any
) -> list[int]:
    """Return the tokens that an answer must have."""
    from webpte.llm.sampling import LogitsProcessor
    from webpte.llm.settings import sampling_params_from

    tokens, processor = list(prompt), LogitsProcessor(sampling_params_from(settings), prompt)
    while len(tokens) < min(len(prompt) + count, capacity + 1):
        tokens.append(expected(tokens, processor.params(len(tokens) - len(prompt)), recalls))
        processor.add(tokens[-1])
    return tokens[len(prompt) :]
