"""Run a model over the rows of a batch: embed, generate or classify. Errors are per row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..embed import Embedder
from ..errors import DeviceLost, Error, InputError
from ..image_files import open_image
from ..llm import LLM, GenerateSettings, Generation
from ..llm.prompts import check_prompt_size
from ..progress import OnProgress, Progress
from ..runtime.checks import wrong_argument
from ..vision import Classifier
from ..vision.images import open_images
from .task_spec import Task, TaskSpec

T = TypeVar("T")
Pixels = NDArray[np.float32]
Columns = Mapping[str, Sequence[Any]]


@dataclass
class BatchResult:
    """The computed columns, one value per row, and a message for each row that failed."""

    columns: dict[str, Any]
    errors: list[str | None]
    tokens: int = 0  # of all rows, without padding
    computed_tokens: int = 0  # with padding
    seconds: float = 0.0  # in which the device was busy or waited for

    @property
    def failed(self) -> int:
        return sum(error is not None for error in self.errors)


class EmbedRunner:
    """Compute a vector per row. Texts of similar lengths share a call, so that few shapes are planned and padded."""

    def __init__(self, path: Path, spec: TaskSpec, progress: OnProgress) -> None:
        self._output, self._column, self._truncate = spec.output_column, spec.column, spec.truncate
        self.model = Embedder.load(path, progress=progress)
        try:
            self._prefix = self.model.tokenizer.prefix(spec.prompt, spec.prefix)
        except BaseException:
            self.model.close()
            raise

    def __call__(self, columns: Columns, progress: OnProgress) -> BatchResult:
        values = columns[self._column]
        rows: list[list[int]] = []
        row_indices: list[int] = []
        errors: list[str | None] = [None] * len(values)
        for index, value in enumerate(values):
            try:
                rows.append(self._tokens(value))
                row_indices.append(index)
            except Error as error:
                errors[index] = row_error(error)
        # NaN where a row failed: no comparison can mistake it for a vector.
        vectors = np.full((len(values), self.model.dimensions), np.nan, np.float32)
        started = time.perf_counter()
        done = computed = 0
        for numbers, padded in self.model.batches(rows):
            batch = [rows[number] for number in numbers]
            vectors[[row_indices[number] for number in numbers]] = retry_on_device_lost(
                self.model.recover,
                lambda: self.model.compute_batch(batch, padded),  # noqa: B023 - called at once
            )
            done, computed = done + len(numbers), computed + len(numbers) * padded
            progress(Progress("embed", done, len(rows), "texts"))
        seconds = time.perf_counter() - started
        return BatchResult({self._output: vectors}, errors, sum(map(len, rows)), computed, seconds)

    def _tokens(self, value: Any) -> list[int]:
        content = text_or_tokens(value)
        limit = self.model.max_tokens
        if isinstance(content, str):
            tokens, length = self.model.tokenizer.encode_text(content, self._prefix)
        elif self._prefix:
            raise InputError(
                argument="value",
                expected="a string, since prompt or prefix is set",
                got="a list of tokens",
                code="wrong_type",
            )
        else:
            tokens, length = content[:limit], len(content)
        if length > limit and not self._truncate:
            raise InputError(
                argument="value",
                expected=f"at most {limit} tokens",
                got=f"{length} tokens",
                code="too_long",
                hint="Split the text, or set truncate.",
            )
        self.model.tokenizer.check_tokens(tokens)
        return tokens

    def close(self) -> None:
        self.model.close()


class GenerateRunner:
    """Generate a text per row. The engine gets all rows of a batch and runs as many at once as it has slots."""

    def __init__(self, path: Path, spec: TaskSpec, progress: OnProgress) -> None:
        self._spec = spec
        self.model = LLM.load(path, progress=progress, recover=True)
        if spec.system is not None and self.model.template is None:
            self.model.close()
            raise InputError(
                f"requires a chat template, and {path} has none",
                argument="system",
                code="no_chat_template",
                hint="Put the instructions into prompt_template.",
            )
        if spec.image_column is not None and self.model.text_model.images is None:
            self.model.close()
            raise InputError(f"{path} reads no images", argument="image_column", code="no_images")

    def __call__(self, columns: Columns, progress: OnProgress) -> BatchResult:
        spec = self._spec
        count = len(columns[spec.input_columns[0]])
        prompts: list[dict[str, Any]] = []
        row_indices: list[int] = []
        errors: list[str | None] = [None] * count
        for index in range(count):
            try:
                prompts.append(self._prompt({name: columns[name][index] for name in spec.input_columns}))
                row_indices.append(index)
            except Error as error:
                errors[index] = row_error(error)
        started = time.perf_counter()
        settings = cast(GenerateSettings, dict(spec.settings))
        answers = self.model.generate_many(prompts, parse_special=spec.parse_special, progress=progress, **settings)
        rows: list[Generation | None] = [None] * count
        for index, answer in zip(row_indices, answers, strict=True):
            if answer.error is not None:
                errors[index] = row_error(answer.error)
            else:
                rows[index] = answer
        return self._result(rows, errors, time.perf_counter() - started)

    def _prompt(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `generate` for a row."""
        spec = self._spec
        if spec.prompt_template is None:
            prompt = text_or_tokens(row[spec.column])
        else:
            values = {name: _template_value(name, row[name]) for name in spec.text_columns}
            prompt = spec.prompt_template.format_map(values)
        if not isinstance(prompt, str):
            if spec.image_column is not None:
                raise InputError(
                    argument="value", expected="a string, since image_column is set", got="a list", code="wrong_type"
                )
            return {"tokens": prompt}
        check_prompt_size(prompt, self.model.tokenizer, self.model.context_limit)
        if spec.raw or self.model.template is None:
            return {"text": prompt}
        system = [{"role": "system", "content": spec.system}] if spec.system is not None else []
        content: Any = prompt
        if spec.image_column is not None:
            image = image_value(row[spec.image_column])
            content = [{"type": "image", "image": image}, {"type": "text", "text": prompt}]
        return {"prompt": [*system, {"role": "user", "content": content}]}

    def _result(self, rows: Sequence[Generation | None], errors: list[str | None], seconds: float) -> BatchResult:
        usages = [None if answer is None else answer.usage for answer in rows]
        columns = {
            self._spec.output_column: [None if answer is None else answer.text for answer in rows],
            "finish_reason": [None if usage is None else usage.finish_reason for usage in usages],
            "prompt_tokens": [None if usage is None else usage.prompt_tokens for usage in usages],
            "completion_tokens": [None if usage is None else usage.completion_tokens for usage in usages],
        }
        tokens = sum(usage.prompt_tokens + usage.completion_tokens for usage in usages if usage is not None)
        return BatchResult(columns, errors, tokens, tokens, seconds)

    def close(self) -> None:
        self.model.close()


class ClassifyRunner:
    """Classify an image per row. Images of one call are decoded at a time, which bounds the memory."""

    def __init__(self, path: Path, spec: TaskSpec, progress: OnProgress) -> None:
        self._output, self._column = spec.output_column, spec.column
        open_images(())  # raises if pillow is missing, before the model is loaded
        self.model = Classifier.load(path, progress=progress)

    def __call__(self, columns: Columns, progress: OnProgress) -> BatchResult:
        values = columns[self._column]
        errors: list[str | None] = [None] * len(values)
        labels: list[str | None] = [None] * len(values)
        scores = np.full(len(values), np.nan, np.float32)
        seconds = 0.0
        for row_indices, pixels in self._batches(values, errors):
            started = time.perf_counter()
            class_scores = retry_on_device_lost(
                self.model.recover,
                lambda: self.model.compute_batch(pixels),  # noqa: B023 - called at once
            )
            seconds += time.perf_counter() - started
            best = class_scores.argmax(axis=1)
            scores[row_indices] = class_scores[np.arange(len(row_indices)), best]
            for index, number in zip(row_indices, best, strict=True):
                labels[index] = self.model.labels[number]
            progress(Progress("classify", row_indices[-1] + 1, len(values), "images"))
        return BatchResult({self._output: labels, "score": scores}, errors, seconds=seconds)

    def _batches(self, values: Sequence[Any], errors: list[str | None]) -> Iterator[tuple[list[int], Pixels]]:
        """Yield indices of rows with their pixels (B, 3, H, W). Write the error of a row without any to `errors`."""
        row_indices: list[int] = []
        batch: list[Pixels] = []
        for index, value in enumerate(values):
            try:
                batch.append(self.model.preprocess(open_image(image_value(value), "value")))
                row_indices.append(index)
            except Error as error:
                errors[index] = row_error(error)
            if len(batch) == self.model.max_batch:
                yield row_indices, np.stack(batch)
                row_indices, batch = [], []
        if batch:
            yield row_indices, np.stack(batch)

    def close(self) -> None:
        self.model.close()


Runner = EmbedRunner | GenerateRunner | ClassifyRunner
RUNNERS: dict[Task, type[EmbedRunner] | type[GenerateRunner] | type[ClassifyRunner]] = {
    "embed": EmbedRunner,
    "generate": GenerateRunner,
    "classify": ClassifyRunner,
}


# -- values of rows ----------------------------------------------------------------------------------------------------


def row_error(error: BaseException) -> str:
    """Return the message of a row that failed."""
    return f"{type(error).__name__}: {error}"


def text_or_tokens(value: Any) -> str | list[int]:
    """Return a row's value as a string or a list of tokens."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"invalid UTF-8: {error}", argument="value", code="invalid_utf8") from error
    expected = "a string or a list of tokens"
    if is_null(value):
        raise InputError(argument="value", expected=expected, got="null", code="null")
    if isinstance(value, (Sequence, np.ndarray)):
        items = list(value)
        if items and all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in items):
            return [int(item) for item in items]
    raise wrong_argument("value", expected, value)


def image_value(value: Any) -> Any:
    """Return a row's image. A path is refused: a block's name is a hash of its rows, which would not cover the file."""
    if isinstance(value, Mapping) and "bytes" in value:  # as Hugging Face datasets stores images
        value = value["bytes"]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    expected = "the bytes of an image file, or pixels"
    if is_null(value):
        raise InputError(argument="value", expected=expected, got="null", code="null")
    if isinstance(value, str):
        raise wrong_argument("value", expected, value)
    return value


def is_null(value: Any) -> bool:
    """Return whether a value is None, or what pandas writes for it."""
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def _template_value(name: str, value: Any) -> str:
    """Return a value as it is written into a template."""
    if isinstance(value, (int, np.integer)) or (isinstance(value, (float, np.floating)) and not np.isnan(value)):
        return str(value)
    content = text_or_tokens(value)
    if not isinstance(content, str):
        raise InputError(
            argument=name, expected="a string or a number for prompt_template", got="a list", code="wrong_type"
        )
    return content


def retry_on_device_lost(recover: Callable[[], object], call: Callable[[], T]) -> T:
    """Return `call()`. If the device is lost, call again on a new one: the program must have no state."""
    try:
        return call()
    except DeviceLost:
        recover()
        return call()
