"""Tokenize texts for an encoder. Needs no GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import InputError
from ..llm.tokenizer import Tokenizer
from ..runtime.checks import check_bool, check_list, check_path, described, did_you_mean, wrong_argument
from ..task_file import TaskFile, read_task
from ..typing import PathLike

POOLINGS = ("mean", "cls", "max", "last")
logger = logging.getLogger(__name__)


class TextTokenizer:
    """The tokenizer of an encoder, with the fields of its task file: prompts, limits, and the kind of vectors."""

    task = "embedding"

    def __init__(self, path: Path, file: TaskFile) -> None:
        """Read all fields of `file`, and the tokenizer beside the program at `path`."""
        self.dimensions = file.integer("dimensions", 1)
        self.max_tokens = file.integer("max_tokens", 2)
        self.pooling = file.choice("pooling", POOLINGS)
        self.normalized = file.boolean("normalize")
        self.prompts = file.string_map("prompts")
        self.pad = file.integer("pad", 0)
        self._default_prompt = file.choice("default_prompt", [*self.prompts]) if file.has("default_prompt") else None
        self._lowercase = file.boolean("lowercase")
        file.check_all_read()
        tokenizer = path.with_name(f"{path.stem}.tokenizer.json")
        self._tokenizer = Tokenizer.load(tokenizer, extra="tasks", max_tokens=self.max_tokens)
        self._vocabulary = self._tokenizer.size

    @classmethod
    def load(cls, path: PathLike) -> TextTokenizer:
        """Return the tokenizer of the program at `path`, which is not opened."""
        program = Path(check_path(path, "path"))
        return cls(program, read_task(program, cls.task))

    def encode(
        self, texts: Iterable[str], *, prompt: str | None = None, prefix: str | None = None, truncate: bool = True
    ) -> list[list[int]]:
        """Return the tokens of each text. The arguments are those of `Embedder.__call__`."""
        prefix = self.prefix(prompt, prefix)
        check_bool(truncate, "truncate")
        rows, truncated = [], []
        for number, text in enumerate(check_list(texts, "texts", "strings", "['a text', 'another']")):
            if not isinstance(text, str):
                raise wrong_argument(f"texts[{number}]", "a string", text)
            tokens, length = self.encode_text(text, prefix)
            if length > len(tokens):
                truncated.append((length, number))
            rows.append(tokens)
        if truncated:
            self._report_truncation(truncated, len(rows), truncate)
        return rows

    def encode_text(self, text: str, prefix: str = "") -> tuple[list[int], int]:
        """Return the tokens of one text, truncated to `max_tokens`, and the number of its tokens before that."""
        content = (prefix + text).strip()  # as in sentence-transformers
        tokens, length = self._tokenizer.encode_cut(content.lower() if self._lowercase else content)
        if not tokens:
            raise InputError(
                argument="text", expected="at least one token", got=f"none of {described(text)}", code="no_tokens"
            )
        return tokens, length

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Check that tokens are in the vocabulary."""
        if not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            invalid = next(token for token in tokens if not 0 <= token < self._vocabulary)
            raise InputError(
                argument="tokens",
                expected=f"tokens from 0 to {self._vocabulary - 1}",
                got=invalid,
                code="token_out_of_range",
            )

    def prefix(self, prompt: str | None, prefix: str | None) -> str:
        """Return the text before every text: the prompt with the name `prompt`, or `prefix`, or the default prompt."""
        if prompt is not None and prefix is not None:
            raise InputError(
                "prompt and prefix exclude each other: each is the text before every text", code="conflicting_options"
            )
        if prefix is not None:
            if not isinstance(prefix, str):
                raise wrong_argument("prefix", "a string, such as 'query: '", prefix)
            return prefix
        name = self._default_prompt if prompt is None else prompt
        if name is None:
            return ""
        if not isinstance(name, str) or name not in self.prompts:
            names = ", ".join(map(repr, self.prompts)) or "none"
            raise InputError(
                argument="prompt",
                expected=f"one of the model's prompts ({names})",
                got=f"{described(name)}{did_you_mean(name, [*self.prompts])}",
                code="unknown_prompt",
            )
        return self.prompts[name]

    def _report_truncation(self, truncated: list[tuple[int, int]], count: int, truncate: bool) -> None:
        """Log a warning about truncated texts, each by length and number; raise without `truncate`."""
        length, number = max(truncated, key=lambda entry: entry[0])
        if not truncate:
            raise InputError(
                argument=f"texts[{number}]",
                expected=f"at most {self.max_tokens} tokens",
                got=f"{length} tokens",
                code="too_long",
                hint="Split it, or export with a larger --max-prefill if the model has it.",
            )
        logger.warning(
            "%d of %d texts truncated to %d tokens; the longest is texts[%d] with %d tokens",
            len(truncated), count, self.max_tokens, number, length,
        )  # fmt: skip
