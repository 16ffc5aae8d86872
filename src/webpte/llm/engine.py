"""The engine: one pass over the weights for all sequences that have something to compute.

Nobody ticks in the background: whoever waits for a token ticks for all, and the others find theirs. What a job has to
compute is always what its tokens are beyond those that its slot has cached: one row for a sequence that decodes, many
for a prompt, and all of them for one that had to give up its slot or whose device was lost. So there is one way in, and
nothing needs to be undone: a pass writes behind what is noted as cached, and is noted when it is done.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from ..errors import DeviceLost, OutOfMemory
from ..runtime.process import Process
from .choice import Choice, Chosen
from .errors import QueueFullError
from .job import Job
from .pace import Pace
from .rows import Pick, Row, Runner
from .slot_table import Resident, Slot, SlotTable, common_prefix
from .speculation import Costs

Result = TypeVar("Result")
WAKE = 0.1  # seconds after which a waiting thread looks by itself, should an interrupt have swallowed its call
FEW = 16  # tokens that follow what is cached for one that decodes: the last, and those that a constraint forces
WORTH_WAITING_FOR = 32  # tokens that two prompts begin with, of which one is being read; fewer are computed twice


class Part(NamedTuple):
    """What a pass computes for one job."""

    job: Job
    slot: Slot
    tokens: list[int]  # from the first that is not cached
    drafted: int  # the last of them
    choices: list[Choice]  # of the tokens behind the last of them
    whole: bool  # nothing is left then


class Engine:
    """Slots, a queue in front of them, and ticks. Every method may be called from any thread."""

    def __init__(
        self,
        runner: Runner,
        *,
        most_slots: int = 16,
        more_slots: int = 0,
        most_waiting: int = 1024,
        recover: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`most_slots` sequences are computed at once; `more_slots` hold what others have left behind."""
        self.runner = runner
        self.table = SlotTable(runner.slots, runner.reach)
        self.turn = threading.RLock()  # held for a tick, and by whoever else uses the device or the table
        self.pace = Pace()
        self.costs = Costs()
        self._most_slots = min(most_slots, runner.most_slots)
        self._all_slots = min(most_slots + more_slots, runner.most_slots)
        self._most_waiting = most_waiting
        self._recover = recover
        self._clock = clock
        self._recoveries = runner.recoveries
        self._arriving: deque[Job] = deque()  # started since the last tick, by any thread
        self._waiting: deque[Job] = deque()  # for a slot
        self._active: list[Job] = []  # those that have one; whose turn it is to read its prompt comes first
        self._ticking = False
        self._ticked = threading.Condition()
        self.passes = 0  # over the weights, since it began
        self.rows = 0  # of all of them
        self.process = Process("the language model")

    @property
    def most_at_once(self) -> int:
        """Sequences that can be computed side by side."""
        return self._most_slots

    def check_process(self) -> None:
        """Raise ForkedError in any process but the one that loaded the model. Comes before any lock."""
        self.process.check()  # in a fork of it a thread that is not there may hold the locks

    # -- for readers -----------------------------------------------------------------------------------------------

    def start(self, job: Job) -> None:
        """Queue a job, which from now on holds its sequence. It gets a slot in the order of coming."""
        self.check_process()
        waiting = len(self._waiting) + len(self._arriving)
        if waiting >= self._most_waiting:
            raise QueueFullError(
                f"{waiting} answers wait already, for {self._most_slots} that are computed at once. Read or "
                "close some of them first, or load the model with a larger max_waiting."
            )
        job.sequence.hold(job)
        self._arriving.append(job)

    def wait(self, jobs: Iterable[Job]) -> None:
        """Until one of the jobs has something to read, or is over: tick, or let another thread tick."""
        self.check_process()
        watched = list(jobs)
        while not any(job.coming or job.over for job in watched):
            if self._ticking:
                with self._ticked:
                    if self._ticking and not any(job.coming or job.over for job in watched):
                        self._ticked.wait(WAKE)
                continue
            with self.turn:
                if any(job.coming or job.over for job in watched):
                    return
                try:
                    self._ticking = True
                    self.tick(watched)
                finally:
                    self._ticking = False
                    with self._ticked:
                        self._ticked.notify_all()

    def finish(self, job: Job) -> None:
        """Compute all of a job, at once; its error is raised."""
        self.start(job)
        try:
            while not job.over:
                self.wait([job])
        except BaseException:
            job.give_up()
            raise
        if job.error is not None:
            raise job.error

    # -- ticks -----------------------------------------------------------------------------------------------------

    def tick(self, watched: Iterable[Job] = ()) -> None:
        """One pass for all that take part. Jobs that are watched are waited for, should they have lost their slot."""
        with self.turn:
            self._notice_loss()
            self._line_up(watched)
            started, recoveries = self._clock(), self.runner.recoveries
            try:
                self._leave()
                self._admit()
                parts = self._gather()
                given = self._run(parts)
            except DeviceLost:
                if self._recover is None:
                    raise
                self._recover()
                return
            if self.runner.recoveries != recoveries:
                return  # another thread has recovered meanwhile: nobody knows what the pass has seen
            self._hand_out(parts, given, self._clock() - started)

    def _line_up(self, watched: Iterable[Job]) -> None:
        while self._arriving:
            self._waiting.append(self._arriving.popleft())
        for job in watched:
            if not job.over and job not in self._active and job not in self._waiting:
                self._waiting.append(job)

    def _notice_loss(self) -> None:
        if self.runner.recoveries != self._recoveries:
            self._recoveries = self.runner.recoveries
            self.table.lose()

    def on_device(self, work: Callable[[], Result]) -> Result:
        """Do what needs the caches as they are noted; again, if they were lost meanwhile."""
        self.check_process()
        with self.turn:
            while True:
                self._notice_loss()
                try:
                    result = work()
                except DeviceLost:
                    if self._recover is None:
                        raise
                    self._recover()
                    continue
                if self.runner.recoveries == self._recoveries:
                    return result

    def _leave(self) -> None:
        """See to those that were cancelled or dropped since the last tick."""
        for job in (*self._active, *self._waiting):
            if job.given_up and not job.over:
                job.finish = "cancelled"
        for job in [job for job in self._active if job.over]:
            self._retire(job)
        if any(job.over for job in self._waiting):
            self._waiting = deque(job for job in self._waiting if not job.over)

    def _retire(self, job: Job) -> None:
        self._active.remove(job)
        if job.sequence.slot is not None and not job.sequence.kept:
            job.sequence.slot.vacate()

    def _admit(self) -> None:
        """Give slots to those who wait, in the order of coming."""
        for job in list(itertools.islice(self._waiting, self._most_slots)):
            if self._is_being_computed(job):
                continue
            if sum(not other.ahead for other in self._active) >= self._most_slots or not self._settle(job):
                break
            self._waiting.remove(job)
            if job.goal == "cache" and job.cached == len(job.tokens):
                job.finish = "length"
            else:
                self._active.append(job)

    def _is_being_computed(self, job: Job) -> bool:
        """Whether a prompt is being read that begins like this one's: the beginning is copied when it is there."""
        wanted = job.reusable
        readers = [other for other in self._active if len(other.tokens) - other.cached > 1]
        shared = max((common_prefix(other.tokens, wanted) for other in readers), default=0)
        return shared >= WORTH_WAITING_FOR and shared > self.table.best(wanted)[1]

    def _settle(self, job: Job) -> bool:
        """Find a slot for a job's sequence, with as much of its tokens as is cached anywhere."""
        sequence, wanted = job.sequence, job.reusable
        if sequence.slot is None and not self.table.has_vacant(empty=self._all_slots > self._most_slots):
            self._grow()
        place = self.table.place(sequence, wanted, self._is_idle)
        if place is None:
            return False
        slot, source, count = place
        if slot.resident is not sequence:
            self._active = [other for other in self._active if other.sequence is not slot.resident]
            slot.give_to(sequence)
        if source is slot:
            slot.keep(count)
        else:
            slot.clear()
            self.runner.copy(source.number, slot.number, count)
            slot.take(wanted[:count])
            self.table.touch(source)
        self.table.touch(slot)
        if job.reused is None:
            job.reused = count
        sequence.note_cached(job, count)
        return True

    def _is_idle(self, resident: Resident) -> bool:
        """Whether nobody will miss a sequence in the next tick: it is computed again when it is read."""
        return all(job.ahead for job in self._active if job.sequence is resident)

    def _grow(self) -> None:
        """Make more slots, if there may be more and memory allows it."""
        if len(self.table) < self._all_slots:
            try:
                self.runner.grow(min(2 * len(self.table), self._all_slots))
            except OutOfMemory:
                self._all_slots = len(self.table)
                self._most_slots = min(self._most_slots, self._all_slots)
            self.table.grow(min(self.runner.slots, self._all_slots))

    def make_slots(self) -> None:
        """All that there may be, or as many as memory allows."""
        self.on_device(self._grow_to_the_end)

    def _grow_to_the_end(self) -> None:
        while len(self.table) < self._all_slots:
            self._grow()

    def _gather(self) -> list[Part]:
        """Rows for everyone who decodes, and a piece of the prompts that are being read, which take turns."""
        ready = [(job, slot) for job in self._active if not job.ahead and (slot := job.sequence.slot) is not None]
        for _, slot in ready:
            slot.mend()
        few = min(FEW, self.runner.most_rows)
        reading = [(job, slot) for job, slot in ready if _is_reading(job, slot, few)]
        decoding = [pair for pair in ready if pair not in reading][: self.runner.most_picks]
        parts = self._decode(decoding, drafting=not reading)  # who reads a prompt need not wait for drafts
        rows = sum(len(part.tokens) for part in parts)
        spare = self.runner.most_picks - sum(len(part.choices) for part in parts)
        left = self.pace.piece(rows, self.runner.most_rows)
        for job, slot in reading:
            rest = job.tokens[len(slot.tokens) :]
            picked = job.goal == "tokens" and len(rest) <= left
            piece = rest[:-1] if picked and not spare else rest[:left]  # of which the last waits with the others
            whole = len(piece) == len(rest)
            found = job.next(rows, 0) if picked and whole else None
            if piece and (found is not None or not picked or not whole):
                parts.append(Part(job, slot, piece, 0, found.choices if found is not None else [], whole))
                left -= len(piece)
                spare -= found is not None
        served = [part.job for part in parts]
        self._active = [job for job in self._active if job not in served] + served
        return parts

    def _decode(self, decoding: list[tuple[Job, Slot]], drafting: bool) -> list[Part]:
        """The last token of each, those that are known but not cached before it, and drafts behind it."""
        rows = sum(len(job.tokens) - len(slot.tokens) for job, slot in decoding)
        while rows > self.runner.most_rows:  # they come first in the next tick
            job, slot = decoding.pop()
            rows -= len(job.tokens) - len(slot.tokens)
        parts: list[Part] = []
        spare = min(self.runner.most_picks - len(decoding), self.runner.most_rows - rows) if drafting else 0
        for job, slot in decoding:
            if (found := job.next(rows, spare)) is not None:
                drafted = len(found.tokens) - 1
                tokens = job.tokens[len(slot.tokens) : -1] + found.tokens
                parts.append(Part(job, slot, tokens, drafted, found.choices, True))
                spare -= drafted
                rows += drafted
        return parts

    def _run(self, parts: list[Part]) -> dict[Job, list[Chosen]]:
        """Have it computed; the tokens that each job was given."""
        alone = [part for part in parts if part.job.wanted_before(_end(part))]
        together = [part for part in parts if part not in alone]
        together.sort(key=lambda part: len(part.tokens) > 1)  # attention has another kernel for rows that share keys
        given = self._pass(together) if together else {}
        for part in alone:
            part.slot.write(len(part.tokens))
            wanted = part.job.wanted_before(_end(part)) - part.job.wanted_before(len(part.slot.tokens))
            part.job.keep_logits(_end(part), self.runner.logits(_rows(part), wanted))
        return given

    def _pass(self, parts: list[Part]) -> dict[Job, list[Chosen]]:
        rows: list[Row] = []
        picks: list[Pick] = []
        for part in parts:
            rows += _rows(part)
            first = len(rows) - len(part.choices)
            picks += [Pick(first + number, choice) for number, choice in enumerate(part.choices)]
        steps = self._steps(parts)
        for part in parts:
            part.slot.write(len(part.tokens) + steps - 1)
        started = self._clock()
        found = self.runner.run_steps(rows, picks, steps) if steps > 1 else [self.runner.run(rows, picks)]
        seconds = self._clock() - started
        self.passes += steps
        self.rows += steps * len(rows)
        self.pace.note(len(rows), steps, seconds)
        self.costs.note(len(rows), seconds / steps)
        given: dict[Job, list[Chosen]] = {}
        number = 0
        for job, _, tokens, drafted, choices, _ in parts:
            chosen = [each for step in found for each in step[number : number + len(choices)]]
            number += len(choices)
            if choices:
                drafts = tokens[len(tokens) - drafted :]
                given[job] = job.accepted(drafts, chosen, len(rows) - drafted, seconds) if steps == 1 else chosen
        return given

    def _steps(self, parts: list[Part]) -> int:
        """Tokens to compute for each in one submit: several, where all decode and nothing has to be seen between."""
        if any(len(part.tokens) != 1 or not part.choices or not part.job.steady for part in parts):
            return 1
        usual = self.pace.steps(len(parts))
        return min(min(part.job.settings.tokens_per_submit or usual, part.job.most_steps) for part in parts)

    def _hand_out(self, parts: list[Part], given: dict[Job, list[Chosen]], seconds: float) -> None:
        for job, slot, tokens, drafted, _, whole in parts:
            chosen = given.get(job, [])
            good = list(itertools.takewhile(lambda found: found.token >= 0, chosen))
            if good or not chosen:
                slot.tokens += [*tokens[: len(tokens) - drafted], *(found.token for found in good[:-1])]
            self.table.touch(slot)
            job.sequence.note_cached(job, len(slot.tokens))
            if job.begun:
                job.decode_seconds += seconds
            else:
                job.prefill_seconds += seconds
            job.give(chosen)
            if whole and job.goal != "tokens":
                job.finish = "length"
            if job.over:
                self._retire(job)


def _is_reading(job: Job, slot: Slot, few: int) -> bool:
    """Whether a prompt is being read, or what was said before is computed again; else the job decodes."""
    rest = len(job.tokens) - len(slot.tokens)
    return job.goal != "tokens" or rest > few or (rest > 1 and len(slot.tokens) < len(job.prompt))


def _end(part: Part) -> int:
    """The position behind its last token."""
    return len(part.slot.tokens) + len(part.tokens)


def _rows(part: Part) -> list[Row]:
    start = len(part.slot.tokens)
    return [Row(token, part.slot.number, start + i) for i, token in enumerate(part.tokens)]
