"""Run a model over the rows of a batch: embed, generate or classify. Errors are per row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..embed import Embedder
from ..errors import DeviceLost, Error, InputError
from ..image_files import open_image
from ..llm import LLM, Generation
from ..llm.batch_generator import BatchGenerator
from ..llm.prompts import check_prompt_size
from ..progress import OnProgress, ignore
from ..runtime.checks import wrong_argument
from ..vision import Classifier
from ..vision.images import open_images
from .results import FinishedRows
from .task_spec import Task, TaskSpec

T = TypeVar("T")
Pixels = NDArray[np.float32]
Columns = Mapping[str, Sequence[Any]]


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

    def __call__(self, columns: Columns, done: Collection[int] = ()) -> Generator[FinishedRows, None, None]:
        """Yield the vectors of each call. Rows in `done` are known: a call that has only such rows is not made, and all
        other calls have the rows that they would have without `done`, so the vectors are the same.
        """
        values = columns[self._column]
        rows: list[list[int]] = []
        row_indices: list[int] = []
        failed: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                rows.append(self._tokens(value))
                row_indices.append(index)
            except Error as error:
                failed[index] = row_error(error)
        # NaN where a row failed: no comparison can mistake it for a vector.
        nothing = np.full((len(failed), self.model.dimensions), np.nan, np.float32)
        yield FinishedRows({self._output: nothing}, [*failed.values()], rows=[*failed])
        for numbers, padded in self.model.batches(rows):
            indices = [row_indices[number] for number in numbers]
            if all(index in done for index in indices):
                continue
            batch = [rows[number] for number in numbers]
            started = time.perf_counter()
            vectors = retry_on_device_lost(
                self.model.recover,
                lambda: self.model.compute_batch(batch, padded),  # noqa: B023 - called at once
            )
            yield FinishedRows(
                {self._output: vectors},
                [None] * len(indices),
                sum(map(len, batch)),
                len(batch) * padded,
                time.perf_counter() - started,
                rows=indices,
            )

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

    def __call__(self, columns: Columns, done: Collection[int] = ()) -> Generator[FinishedRows, None, None]:
        """Yield the answer of each row that is not in `done`, as it is finished."""
        spec = self._spec
        settings = {**spec.settings, "parse_special": spec.parse_special}
        self.model.text_model.sampling_params(spec.settings)  # raises for the batch, not for each row
        prompts: list[dict[str, Any]] = []
        row_indices: list[int] = []
        failed: dict[int, str] = {}
        for index in range(len(columns[spec.input_columns[0]])):
            if index in done:
                continue
            try:
                prompts.append(self._prompt({name: columns[name][index] for name in spec.input_columns}))
                row_indices.append(index)
            except Error as error:
                failed[index] = row_error(error)
        yield self._rows(list(failed), [None] * len(failed), list(failed.values()))
        started = time.perf_counter()
        with closing(BatchGenerator(self.model, prompts, settings, False, ignore).run()) as answers:
            for number, answer in answers:
                reason = None if answer.error is None else row_error(answer.error)
                seconds = time.perf_counter() - started
                yield self._rows([row_indices[number]], [None if reason else answer], [reason], seconds)
                started = time.perf_counter()

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

    def _rows(
        self,
        indices: Sequence[int],
        answers: Sequence[Generation | None],
        errors: Sequence[str | None],
        seconds: float = 0.0,
    ) -> FinishedRows:
        usages = [None if answer is None else answer.usage for answer in answers]
        columns = {
            self._spec.output_column: [None if answer is None else answer.text for answer in answers],
            "finish_reason": [None if usage is None else usage.finish_reason for usage in usages],
            "prompt_tokens": [None if usage is None else usage.prompt_tokens for usage in usages],
            "completion_tokens": [None if usage is None else usage.completion_tokens for usage in usages],
        }
        tokens = sum(usage.prompt_tokens + usage.completion_tokens for usage in usages if usage is not None)
        return FinishedRows(columns, [*errors], tokens, tokens, seconds, rows=indices)

    def close(self) -> None:
        self.model.close()


class ClassifyRunner:
    """Classify an image per row. Images of one call are decoded at a time, which bounds the memory."""

    def __init__(self, path: Path, spec: TaskSpec, progress: OnProgress) -> None:
        self._output, self._column = spec.output_column, spec.column
        open_images(())  # raises if pillow is missing, before the model is loaded
        self.model = Classifier.load(path, progress=progress)

    def __call__(self, columns: Columns, done: Collection[int] = ()) -> Generator[FinishedRows, None, None]:
        """Yield the classes of each call. Rows in `done` are known: a call that has only such rows is not made."""
        values = columns[self._column]
        for first in range(0, max(len(values), 1), self.model.max_batch):
            indices = range(first, min(first + self.model.max_batch, len(values)))
            if not indices or not all(index in done for index in indices):
                yield self._classify(indices, [values[index] for index in indices])

    def _classify(self, indices: Sequence[int], values: Sequence[Any]) -> FinishedRows:
        errors: list[str | None] = [None] * len(values)
        labels: list[str | None] = [None] * len(values)
        scores = np.full(len(values), np.nan, np.float32)
        images: dict[int, Pixels] = {}
        for place, value in enumerate(values):
            try:
                images[place] = self.model.preprocess(open_image(image_value(value), "value"))
            except Error as error:
                errors[place] = row_error(error)
        started = time.perf_counter()
        if images:
            pixels = np.stack([*images.values()])  # (B, 3, H, W)
            class_scores = retry_on_device_lost(self.model.recover, lambda: self.model.compute_batch(pixels))
            best = class_scores.argmax(axis=1)
            scores[[*images]] = class_scores[np.arange(len(images)), best]
            for place, number in zip(images, best, strict=True):
                labels[place] = self.model.labels[number]
        seconds = time.perf_counter() - started
        return FinishedRows({self._output: labels, "score": scores}, errors, seconds=seconds, rows=indices)

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
