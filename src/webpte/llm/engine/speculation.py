"""Speculative decoding without a second model: drafts come from the sequence's own text.

A step over two tokens costs less than two steps over one. So verifying a drafted token beside the last one saves time
if drafts are right often enough. How often is known without running anything: every sampled token shows whether a draft
would have been right. An account bounds what wrong drafts may cost.
"""

from __future__ import annotations

import bisect
import statistics
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..constraints import GrammarMatcher, Mask
from .reasoning import ReasoningSplitter

MIN_NGRAM_TOKENS = 2  # with 3, answers of a small model were up to 5 % slower
MAX_NGRAM_TOKENS = 32  # compared to choose among several positions
MAX_POSITIONS = 4  # latest positions that are kept for one n-gram
DRAFT_COUNTS = (1, 3, 7, 15)  # few numbers, because each number of tokens in a step has a schedule of its own
MAX_DRAFTS = DRAFT_COUNTS[-1]
NUM_LATEST = 9  # steps of one size whose median counts
MIN_SAMPLES = 3  # of them: fewer may be outliers, or include the first, which compiles
STALE_STEPS = 500  # after which the cost of a size that was not seen is forgotten
TOKEN_COST = 0.25  # of a step, for one more token, until it is measured
MIN_GAIN = 1.05  # expected; estimates err
MAX_LOSS = 0.02  # of a sequence's time that drafts may have cost before they stop,
OVERDRAFT = 0.5  # and of a step, that one draft may cost beyond that
DECAY = 0.95  # weight of older evidence, with each token
PRIOR_WEIGHT = 2.0  # of what is assumed before there is evidence


class NgramDrafter:
    """Predicts the next tokens of a sequence from the latest place where its text ended as it ends now.

    The cost of a token does not depend on the length of the text.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens: list[int] = []
        self._positions: dict[tuple[int, ...], list[int]] = {}  # of each n-gram: where the text continued
        self._next = 0  # where the text continued after the best match
        self.match_length = 0  # tokens before it that are equal; 0: no match
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self._append(token)

    def _append(self, token: int) -> None:
        text, end = self._tokens, len(self._tokens) + 1
        continues = self.match_length > 0 and text[self._next] == token
        text.append(token)
        if end < MIN_NGRAM_TOKENS:
            return
        positions = self._positions.setdefault(tuple(text[-MIN_NGRAM_TOKENS:]), [])
        if continues:  # no other match can be longer
            self._next += 1
            self.match_length += 1
        else:
            matches = ((self._match_length_at(position), position) for position in positions)
            self.match_length, self._next = max(matches, default=(0, 0))
        positions.append(end)
        if len(positions) > MAX_POSITIONS:
            del positions[0]

    def _match_length_at(self, position: int) -> int:
        """Return how many tokens before a position equal those at the end."""
        text = self._tokens
        for length in range(MIN_NGRAM_TOKENS, min(MAX_NGRAM_TOKENS, position)):
            if text[position - 1 - length] != text[-1 - length]:
                return length
        return min(MAX_NGRAM_TOKENS, position)

    def draft(self, count: int) -> tuple[int, ...]:
        """Return up to `count` tokens that followed the match. A text that repeats itself is continued periodically."""
        if not self.match_length:
            return ()
        drafts = self._tokens[self._next : self._next + count]
        while len(drafts) < count:
            drafts += drafts[: count - len(drafts)]  # the period is the distance from the match to the end
        return tuple(drafts)


class StepCosts:
    """Seconds of a step by its number of tokens, as measured lately, for all sequences of a model."""

    def __init__(self, statistic: Callable[[Iterable[float]], float] = statistics.median) -> None:
        self._statistic = statistic
        self._latest: dict[int, deque[float]] = {}
        self._costs: dict[int, float] = {}
        self._known: list[int] = []  # the sizes that have a cost, in order
        self._last_seen: dict[int, int] = {}  # the number of the latest step of a size
        self._steps = 0

    def record(self, num_tokens: int, seconds: float) -> None:
        self._steps += 1
        self._last_seen[num_tokens] = self._steps
        latest = self._latest.setdefault(num_tokens, deque(maxlen=NUM_LATEST))
        latest.append(seconds)
        if len(latest) >= MIN_SAMPLES:
            if num_tokens not in self._costs:
                bisect.insort(self._known, num_tokens)
            self._costs[num_tokens] = self._statistic(latest)
        if self._steps % STALE_STEPS == 0:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Remove old figures: they come from other context lengths, or from a moment when the machine was busy."""
        for size in [size for size, seen in self._last_seen.items() if self._steps - seen >= STALE_STEPS]:
            del self._latest[size], self._last_seen[size]
            self._costs.pop(size, None)
        self._known = sorted(self._costs)

    def seconds(self, num_tokens: int) -> float | None:
        """Return the expected seconds of a step; None if nothing was measured."""
        if num_tokens in self._costs:
            return self._costs[num_tokens]
        if not self._known:
            return None
        at = bisect.bisect(self._known, num_tokens)
        if at == 0:
            return self._costs[self._known[0]]
        below = self._known[at - 1]
        if len(self._known) == 1:
            return self._costs[below] * (1 + TOKEN_COST * (num_tokens - below) / below)
        left, right = (below, self._known[at]) if at < len(self._known) else (self._known[0], below)
        slope = (self._costs[right] - self._costs[left]) / (right - left)
        return self._costs[below] + max(0.0, slope) * (num_tokens - below)  # noise can make the slope negative


class Speculation:
    """Decides how many tokens to draft for one sequence: as many as pay, or with `always` as many as there are."""

    def __init__(self, costs: StepCosts, prompt: Iterable[int], always: bool = False) -> None:
        self._costs = costs
        self._always = always
        self._drafter = NgramDrafter(prompt)
        self._right: dict[int, float] = {}  # by length of the match: weight of drafts that were right
        self._tried: dict[int, float] = {}  # and of all
        self._balance = 0.0  # seconds that drafts have saved
        self._seconds = 0.0  # of all steps
        self._last_accepted = 0
        self._recomputed = 0  # tokens, after the latest rejection
        self.drafted = self.accepted = 0

    def append(self, token: int) -> None:
        """Record a token of the answer."""
        if self._drafter.match_length:
            bucket = _bucket(self._drafter.match_length)
            right = self._drafter.draft(1) == (token,)
            self._right[bucket] = DECAY * self._right.get(bucket, 0.0) + right
            self._tried[bucket] = DECAY * self._tried.get(bucket, 0.0) + 1
        self._drafter.extend((token,))

    def draft(self, num_tokens: int, max_drafts: int) -> tuple[int, ...]:
        """Return drafts for a step that has `num_tokens` tokens without them."""
        if not self._drafter.match_length:
            return ()
        if self._always:
            return self._drafter.draft(allowed_drafts(max_drafts))
        # Many drafts only after fewer that were all right: one large mistake costs more than small ones have saved.
        limit = allowed_drafts(min(max_drafts, 2 * self._last_accepted + 1))
        return self._drafter.draft(self._best_count(num_tokens, limit))

    def verified(self, num_tokens: int, drafted: int, accepted: int, seconds: float) -> None:
        """Record a step of `num_tokens` tokens and `drafted` drafts, of which some were accepted."""
        self.drafted += drafted
        self.accepted += accepted
        plain, full = self._costs.seconds(num_tokens), self._costs.seconds(num_tokens + drafted)
        if drafted:
            self._last_accepted = accepted
        if plain is None or full is None:
            return
        self._seconds += full
        if drafted:  # a step that takes far longer than expected has compiled something
            self._balance += plain * accepted / num_tokens - (min(seconds, 3 * full) - plain)

    def recompute(self, num_tokens: int, count: int) -> None:
        """Record that a rejected draft lets the next step compute `count` tokens again beside `num_tokens`."""
        self._recomputed = count
        self._balance -= self._recompute_seconds(num_tokens)

    def _recompute_seconds(self, num_tokens: int) -> float:
        few, many = (self._costs.seconds(size) for size in (num_tokens, num_tokens + self._recomputed))
        return many - few if few is not None and many is not None else 0.0

    def _best_count(self, num_tokens: int, limit: int) -> int:
        """Return the number of drafts with the most expected tokens per second, over all sequences of the step."""
        plain = self._costs.seconds(num_tokens)
        if plain is None:
            return 0
        best, count = MIN_GAIN * num_tokens / plain, 0
        expected, chance = float(num_tokens), 1.0
        credit = self._balance + MAX_LOSS * self._seconds
        if credit < 0:
            return 0
        repeat = self._recompute_seconds(num_tokens)
        for drafts in range(1, limit + 1):
            chance *= self._chance(self._drafter.match_length + drafts - 1)
            expected += chance
            cost = (self._costs.seconds(num_tokens + drafts) or plain) + (1 - chance) * repeat
            if cost - plain > credit + OVERDRAFT * plain:
                break
            if drafts in DRAFT_COUNTS and expected / cost > best:
                best, count = expected / cost, drafts
        return count

    def _chance(self, match_length: int) -> float:
        """Return the probability that a draft is right after a match of this length."""
        bucket = _bucket(match_length)
        prior = PRIOR_WEIGHT * match_length / (match_length + 4)
        return (self._right.get(bucket, 0.0) + prior) / (self._tried.get(bucket, 0.0) + PRIOR_WEIGHT)


def allowed_drafts(limit: int) -> int:
    """Return the largest number of drafts that is used, up to `limit`."""
    return max((count for count in DRAFT_COUNTS if count <= limit), default=0)


def _bucket(match_length: int) -> int:
    """Group lengths: 2, 3, 4 to 5, 6 to 9, 10 to 17 ..."""
    return (match_length - MIN_NGRAM_TOKENS).bit_length()


class Draft(NamedTuple):
    """Drafted tokens, and the masks of what may be sampled: after the last token and after each draft."""

    tokens: tuple[int, ...]
    masks: list[Mask | None]


class DecodeState:
    """The constraint and the drafts of one request. An error that is raised here ends only that request."""

    def __init__(
        self,
        matcher: GrammarMatcher | None = None,
        speculation: Speculation | None = None,
        splitter: ReasoningSplitter | None = None,
    ) -> None:
        """Create a state. The constraint holds for the answer: from the end of the thought on."""
        self._matcher = matcher
        self._speculation = speculation
        self._splitter = splitter

    @property
    def _before_answer(self) -> bool:
        return self._splitter is not None and self._splitter.state != "answer"

    @property
    def guided(self) -> bool:
        """Return whether each token decides what may follow it."""
        return self._matcher is not None

    @property
    def ended(self) -> bool:
        """Return whether the constraint allows nothing more."""
        return self._matcher is not None and not self._before_answer and self._matcher.ended

    def append(self, token: int, *, in_answer: bool = True) -> None:
        if self._speculation is not None:
            self._speculation.append(token)
        if self._matcher is not None and in_answer:
            self._matcher.take(token)

    def forced(self) -> tuple[int, ...]:
        """Return the next tokens to which the constraint leaves no alternative."""
        return self._matcher.forced() if self._matcher is not None and not self._before_answer else ()

    def draft(self, num_tokens: int, max_drafts: int) -> Draft:
        """Return drafts for a step of `num_tokens` tokens, and the masks."""
        if self._matcher is not None and self._splitter is not None and self._before_answer:
            return Draft((), [self._splitter.opening_mask(self._matcher)])
        drafts = self._speculation.draft(num_tokens, max_drafts) if self._speculation is not None else ()
        if self._matcher is None:
            return Draft(drafts, [None] * (1 + len(drafts)))
        masks = self._matcher.after(drafts)
        count = allowed_drafts(len(masks))
        return Draft(drafts[:count], [self._matcher.mask(), *masks[:count]])

    def verified(self, num_tokens: int, drafted: int, accepted: int, seconds: float) -> None:
        if self._speculation is not None:
            self._speculation.verified(num_tokens, drafted, accepted, seconds)

    def recompute(self, num_tokens: int, count: int) -> None:
        if self._speculation is not None:
            self._speculation.recompute(num_tokens, count)
