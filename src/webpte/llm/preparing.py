"""All that a language model does for the first time, before anyone waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..progress import OnProgress, Progress
from .pace import TOTALS

if TYPE_CHECKING:
    from .model import LLM

LONGEST = 64  # tokens of a prompt that is read for practice: longer ones run what these have compiled
TOKEN = 0  # any that there is


def prepare(llm: LLM, progress: OnProgress) -> None:
    """Make all slots, answer every number of prompts at once, and read prompts of several lengths."""
    engine = llm.engine
    engine.make_slots()
    together = [(count, 1) for count in range(1, engine.most_at_once + 1)]
    lengths = [(1, length) for length in TOTALS if length <= min(LONGEST, llm.chunk, llm.capacity - 1)]
    for done, (count, length) in enumerate(together + lengths):
        progress(Progress("prepare", done, len(together) + len(lengths), "passes"))
        llm.forget()  # what is cached is not computed
        answers = [llm.generate(tokens=[TOKEN] * length, max_new_tokens=1) for _ in range(count)]
        for answer in answers:
            answer.start()
        for answer in answers:
            answer.read()
    llm.forget()
