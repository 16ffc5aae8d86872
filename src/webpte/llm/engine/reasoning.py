"""Splits the tokens of a response into the reasoning at its beginning and the answer."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

import numpy as np

from ..constraints import GrammarMatcher, Mask
from ..thinking import Thought
from .stop_strings import StopStringBuffer

PieceKind = Literal["answer", "reasoning", "pending"]


class SplitText(NamedTuple):
    """What one token adds to the answer and to the reasoning."""

    text: str
    reasoning: str = ""
    kind: PieceKind = "answer"


class ReasoningSplitter:
    """Finds where a thought begins and ends.

    A thought begins at the start of the response, or in the prompt; a tag that comes later is text. A tag that is a
    token of the vocabulary is found by its number, so that the same characters in the text of a thought do not end it.
    Another tag is found in the text. White space around the reasoning, and before the answer, is left out.

    Tags with headers, which are tokens, begin each message of a response: a header names the channel of the text after
    it. Headers have no text.
    """

    def __init__(self, thought: Thought, *, constrained: bool = False) -> None:
        """Start at the end of the prompt. Without token for the tag, a `constrained` response begins no thought."""
        self._thought = thought
        self._constrained = constrained
        self.state: Literal["start", "header", "thought", "answer"] = "thought" if thought.is_open else "start"
        if constrained and not thought.is_open and thought.begin_id is None:
            self.state = "answer"
        self.num_tokens = 0  # of the thought
        self._label = "" if thought.tags.message else thought.tags.label
        self._header = ""
        self._answered = False  # a message of the answer has begun
        self._held = ""  # at the start: what may become the tag; in the thought: white space, or its label
        self._begun = False  # the reasoning has text
        self._trimming = False  # white space before the answer
        self._end = StopStringBuffer([thought.tags.end] if thought.end_id is None else ())
        self._due: deque[int] = deque()
        self._check_budget()

    @property
    def due(self) -> int | None:
        """Return the token that must come next; None if it is sampled."""
        return self._due[0] if self._due else None

    @property
    def max_tokens(self) -> int | None:
        """Return how many tokens may be sampled before `due` is read again; None for any number."""
        budget = self._thought.budget
        return None if budget is None or self.state == "answer" else max(1, budget - self.num_tokens)

    def is_tag(self, token: int) -> bool:
        """Return whether a token is a tag here. A tag has no text."""
        if self.state == "start":
            return token == self._thought.begin_id
        if self.state == "header":
            return token == self._thought.message_id
        if self.state == "answer":
            return bool(self._thought.tags.message) and token == self._thought.end_id
        repeated = token == self._thought.begin_id and not self._begun  # by a model whose prompt has it
        return self.state == "thought" and (token == self._thought.end_id or repeated)

    def opening_mask(self, matcher: GrammarMatcher) -> Mask | None:
        """Return the tokens that may come before the answer of a constrained response: all in a thought, and at the
        start those that begin the thought or the answer."""
        token = self._thought.begin_id
        if self.state != "start" or token is None:
            return None
        mask = matcher.mask().copy()
        mask[token // 32] |= np.uint32(1 << token % 32)
        return mask

    def close(self) -> None:
        """End the thought: the tokens that do are due."""
        self._due.extend(self._thought.closing)

    def push(self, token: int, text: str) -> SplitText:
        """Add a token and the text that it completes."""
        forced = token == self.due
        if forced:
            self._due.popleft()
        if forced and self.state == "answer":  # the separator
            return SplitText("", "", "reasoning")
        if self.state == "start":
            split = self._push_start(token, text)
        elif self.state == "header":
            split = self._push_header(token, text)
        elif self.state == "thought":
            self.num_tokens += 1
            split = self._push_thought(token, text)
        elif self.is_tag(token):
            self.state, self._answered = "header", True
            split = SplitText(text)
        else:
            split = self._push_answer(text)
        self._check_budget()
        return split

    def flush(self, text: str) -> SplitText:
        """Add the last text; return all that is held back."""
        if self.state == "start":
            return SplitText(self._held + text)
        if self.state == "thought":
            reasoning = self._clean(self._end.flush(text))
            return SplitText("", reasoning + self._rest(), "reasoning")
        if self.state == "header":
            return SplitText("")
        return SplitText(text.lstrip() if self._trimming else text)

    def _push_start(self, token: int, text: str) -> SplitText:
        if self.is_tag(token):
            self.state, self._held = "header" if self._thought.tags.message else "thought", ""
            return SplitText("", "", "reasoning")
        self._held += text
        begin = self._thought.tags.begin if self._thought.begin_id is None else ""
        head = self._held.lstrip()
        if begin and head.startswith(begin):
            self.state, self._held = "thought", ""
            return self._push_thought(token, head.removeprefix(begin))
        if begin.startswith(head) and not self._constrained:
            return SplitText("", "", "pending")
        self.state = "answer"
        return SplitText(self._held)

    def _push_header(self, token: int, text: str) -> SplitText:
        """Add a token of a header. Its text is the names of a role and a channel."""
        if token != self._thought.message_id:
            self._header += text
        else:
            thinks = self._header.strip().endswith(self._thought.tags.label) and not self._answered
            self.state, self._header = "thought" if thinks else "answer", ""
        return SplitText("", "", "answer" if self._answered else "reasoning")

    def _push_thought(self, token: int, text: str) -> SplitText:
        reasoning = self._clean(self._end.push(text))
        if token != self._thought.end_id and not self._end.matched:
            return SplitText("", reasoning, "reasoning")
        reasoning += self._rest()
        headed = bool(self._thought.tags.message)
        self.state, self._trimming = "header" if headed else "answer", not self._constrained
        if self._constrained and not self._due:
            self._due.extend(self._thought.separator)
        if headed:
            return SplitText("", reasoning, "reasoning")
        # Text after a tag in the same token is not in a constraint's grammar.
        after = "" if self._constrained else self._end.held.removeprefix(self._thought.tags.end)
        return SplitText(self._push_answer(after).text, reasoning, "reasoning")

    def _push_answer(self, text: str) -> SplitText:
        if not self._trimming:
            return SplitText(text)
        answer = text.lstrip()
        self._trimming = not answer
        return SplitText(answer, "", "answer" if answer else "reasoning" if text else "pending")

    def _clean(self, text: str) -> str:
        """Return what a text adds to the reasoning. White space at its end is held back, and a label is left out."""
        self._held += text
        if not self._begun:
            head = self._held.lstrip()
            if self._label and head.startswith(self._label + "\n"):
                head, self._label = head.removeprefix(self._label).lstrip(), ""
            self._held = head
            if self._label.startswith(head.rstrip()):
                return ""
            self._begun = True
        out = self._held.rstrip()
        self._held = self._held[len(out) :]
        return out

    def _rest(self) -> str:
        """Return what is held back at the end of the thought: nothing but the beginning of a label is text."""
        rest, self._held = self._held.strip(), ""
        return "" if rest == self._label else rest

    def _check_budget(self) -> None:
        budget = self._thought.budget
        if self.state == "thought" and budget is not None and self.num_tokens >= budget and not self._due:
            self.close()
