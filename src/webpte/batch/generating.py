"""Rows to answers. All rows of a call are given to the engine, which computes as many at once as it has slots."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import Error, InputError
from ..llm import LLM, GenerateSettings, Generation
from ..llm.prompt_size import check_prompt_size
from ..progress import OnProgress
from .made import Made, text_or_tokens
from .wanted import Wanted


class Generating:
    """A language model that answers rows."""

    def __init__(self, path: Path, wanted: Wanted, progress: OnProgress) -> None:
        self._wanted = wanted
        self.model = LLM.load(path, progress=progress, recover=True)
        if wanted.system is not None and self.model.template is None:
            self.model.close()
            raise InputError(
                f"system needs a chat template, and {path} has none; put it into the prompt_template",
                code="no_chat_template",
            )

    def __call__(self, columns: Mapping[str, Sequence[Any]], progress: OnProgress) -> Made:
        count = len(columns[self._wanted.columns[0]])
        prompts: list[dict[str, Any]] = []
        places: list[int] = []
        errors: list[str | None] = [None] * count
        for place in range(count):
            try:
                prompts.append(self._prompt({name: columns[name][place] for name in self._wanted.columns}))
                places.append(place)
            except Error as error:
                errors[place] = f"{type(error).__name__}: {error}"
        started = time.perf_counter()
        settings = cast(GenerateSettings, dict(self._wanted.settings))
        found = self.model.generate_many(
            prompts, parse_special=self._wanted.parse_special, progress=progress, **settings
        )
        answers: dict[int, Generation] = {}
        for place, answer in zip(places, found, strict=True):
            if answer.error is not None:
                errors[place] = f"{type(answer.error).__name__}: {answer.error}"
            else:
                answers[place] = answer
        return self._made(count, answers, errors, time.perf_counter() - started)

    def _prompt(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What `generate` is given for a row."""
        wanted = self._wanted
        if wanted.prompt_template is None:
            given = text_or_tokens(row[wanted.column])
        else:
            given = wanted.prompt_template.format_map({name: _shown(name, value) for name, value in row.items()})
        if not isinstance(given, str):
            return {"tokens": given}
        check_prompt_size(given, self.model.tokenizer, self.model.capacity)
        if wanted.raw or self.model.template is None:
            return {"prompt": given}
        first = [{"role": "system", "content": wanted.system}] if wanted.system is not None else []
        return {"prompt": [*first, {"role": "user", "content": given}]}

    def _made(self, count: int, answers: Mapping[int, Generation], errors: list[str | None], seconds: float) -> Made:
        rows = [answers.get(place) for place in range(count)]
        usages = [None if answer is None else answer.usage for answer in rows]
        columns = {
            self._wanted.output_column: [None if answer is None else answer.text for answer in rows],
            "finish_reason": [None if usage is None else usage.finish_reason for usage in usages],
            "prompt_tokens": [None if usage is None else usage.prompt_tokens for usage in usages],
            "completion_tokens": [None if usage is None else usage.completion_tokens for usage in usages],
        }
        tokens = sum(usage.prompt_tokens + usage.completion_tokens for usage in usages if usage is not None)
        return Made(columns, errors, tokens, tokens, seconds)

    def close(self) -> None:
        self.model.close()


def _shown(name: str, value: Any) -> str:
    """A value in a template: a text, or a number as it is written."""
    if isinstance(value, (int, np.integer)) or (isinstance(value, (float, np.floating)) and not np.isnan(value)):
        return str(value)
    found = text_or_tokens(value)
    if not isinstance(found, str):
        raise InputError(f"{name} is a list; prompt_template takes texts and numbers")
    return found
