"""Texts to the tokens that an encoder takes, by what stands beside its program. Needs no GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import InputError
from ..llm.tokenizer import Tokenizer
from ..runtime.checks import PathLike, described, flag, listed, near, path_of
from ..task_file import TaskFile, read_task

POOLINGS = ("mean", "cls", "max", "last")
log = logging.getLogger("webpte")


class Texts:
    """What an encoder's files say of texts and of vectors: its tokenizer, and what the model wants before a text."""

    task = "embedding"

    def __init__(self, path: Path, file: TaskFile) -> None:
        """`file` is asked for all its fields here."""
        self.where = file.path
        self.dimensions = file.integer("dimensions", 1)
        self.max_tokens = file.integer("max_tokens", 2)
        self.pooling = file.choice("pooling", POOLINGS)
        self.normalized = file.boolean("normalize")
        self.prompts = file.string_map("prompts")
        self.pad = file.integer("pad", 0)
        self._default_prompt = file.choice("default_prompt", [*self.prompts]) if file.has("default_prompt") else None
        self._lowercase = file.boolean("lowercase")
        file.check_all_read()
        words = path.with_name(f"{path.stem}.tokenizer.json")
        self._tokenizer = Tokenizer.load(words, extra="tasks", most_tokens=self.max_tokens)
        self._words = self._tokenizer.size

    @classmethod
    def load(cls, path: PathLike) -> Texts:
        """Of the program at `path`, which is not opened."""
        program = Path(path_of(path, "path"))
        return cls(program, read_task(program, cls.task))

    def encode(
        self, texts: Iterable[str], *, prompt: str | None = None, prefix: str | None = None, truncate: bool = True
    ) -> list[list[int]]:
        """The tokens of each text: see `Embedder.__call__`."""
        before = self.before(prompt, prefix)
        flag(truncate, "truncate")
        rows, cut = [], []
        given = listed(texts, "texts", "texts", "['a text', 'another']")
        for number, text in enumerate(given):
            if not isinstance(text, str):
                raise InputError(f"texts[{number}] is a text, not {described(text)}")
            tokens, length = self.tokens_of(text, before)
            if length > len(tokens):
                cut.append((number, length))
            rows.append(tokens)
        if cut:
            self._tell(cut, len(given), truncate)
        return rows

    def tokens_of(self, text: str, before: str = "") -> tuple[list[int], int]:
        """The tokens of one text, cut to `max_tokens`, and how many it has uncut."""
        whole = (before + text).strip()  # as sentence-transformers does
        tokens, length = self._tokenizer.encode_cut(whole.lower() if self._lowercase else whole)
        if not tokens:
            raise InputError(f"the text has no tokens: {described(text)}")
        return tokens, length

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Refuse tokens of strangers that are none of the tokenizer's."""
        if not 0 <= min(tokens) <= max(tokens) < self._words:
            wrong = next(token for token in tokens if not 0 <= token < self._words)
            raise InputError(f"the text has token {wrong}; the tokenizer knows 0 to {self._words - 1}")

    def before(self, prompt: str | None, prefix: str | None) -> str:
        """What is put before every text."""
        if prompt is not None and prefix is not None:
            raise InputError(
                "prompt and prefix are both given; one says what to put before every text", code="conflicting_options"
            )
        if prefix is not None:
            if not isinstance(prefix, str):
                raise InputError(f"prefix is a text, such as 'query: ', not {described(prefix)}")
            return prefix
        name = self._default_prompt if prompt is None else prompt
        if name is None:
            return ""
        if not isinstance(name, str) or name not in self.prompts:
            known = ", ".join(map(repr, self.prompts)) or "none"
            raise InputError(
                f"prompt is one of the model's, {known}, not {described(name)}{near(name, [*self.prompts])}"
            )
        return self.prompts[name]

    def _tell(self, cut: list[tuple[int, int]], count: int, truncate: bool) -> None:
        number, length = max(cut, key=lambda one: one[1])
        longest = f"texts[{number}] has {length} tokens, and the program takes {self.max_tokens}"
        if not truncate:
            raise InputError(f"{longest}; split it, or export with a larger --max-tokens if the model has it")
        log.warning("%d of %d texts were cut; %s", len(cut), count, longest)
