"""The task of a batch job with its options, and the hash of the model's files.

Options are checked once, in the calling process, before a model is loaded anywhere.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from ..container.files import similar_paths
from ..errors import FormatError, InputError
from ..json_files import read_json
from ..llm.defaults import FILTERS, PENALTIES
from ..llm.metadata import TOKENIZERS
from ..llm.settings import DEFAULTS, sampling_params_from
from ..runtime.checks import check_bool, check_choice, check_str, did_you_mean, wrong_argument
from ..sources import beside
from ..task_file import MAX_TASK_FILE_BYTES, task_path

Task = Literal["embed", "generate", "classify"]
TASKS: tuple[Task, ...] = ("embed", "generate", "classify")
TASK_FILE_TASKS: dict[str, Task] = {"embedding": "embed", "image classification": "classify"}
DEFAULT_OUTPUT_COLUMN: dict[Task, str] = {"embed": "embedding", "generate": "generated", "classify": "label"}
EXTRA_OUTPUT_COLUMNS: dict[Task, tuple[str, ...]] = {
    "embed": (),
    "generate": ("finish_reason", "prompt_tokens", "completion_tokens"),
    "classify": ("score",),
}
TASK_OF_OPTION: dict[str, Task] = {  # options that only one task takes
    "prompt": "embed",
    "prefix": "embed",
    "truncate": "embed",
    "prompt_template": "generate",
    "image_column": "generate",
    "system": "generate",
    "raw": "generate",
    "parse_special": "generate",
    "settings": "generate",
}
ERROR_COLUMN = "error"

TOKENIZER_FILES = (
    *TOKENIZERS,
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
)
READ_BYTES = 1 << 20  # of a file that is hashed, at a time


class TaskOptions(TypedDict, total=False):
    """The keyword options of `Predictor` and `run`."""

    task: Task | None
    column: str
    output_column: str | None
    prompt: str | None
    prefix: str | None
    truncate: bool
    prompt_template: str | None
    image_column: str | None
    system: str | None
    raw: bool
    parse_special: bool
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class TaskSpec:
    """A task with its options. Two specs with equal `identity` compute the same columns from the same rows."""

    task: Task
    column: str = "text"
    output_column: str = ""  # DEFAULT_OUTPUT_COLUMN if empty
    prompt: str | None = None
    prefix: str | None = None
    truncate: bool = False
    prompt_template: str | None = None
    image_column: str | None = None
    system: str | None = None
    raw: bool = False
    parse_special: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice(self.task, "task", TASKS)
        check_str(self.column, "column", "text")
        if not self.output_column:
            object.__setattr__(self, "output_column", DEFAULT_OUTPUT_COLUMN[self.task])
        check_str(self.output_column, "output_column", DEFAULT_OUTPUT_COLUMN[self.task])
        if self.image_column is not None:
            check_str(self.image_column, "image_column", "image")
        check_bool(self.truncate, "truncate")
        check_bool(self.raw, "raw")
        check_bool(self.parse_special, "parse_special")
        self._check_settings()
        self._check_combination()

    def _check_settings(self) -> None:
        """Check the settings. Drop those that equal their defaults; those of sampling have defaults of the model."""
        if not isinstance(self.settings, Mapping):
            raise wrong_argument("settings", "a mapping of the settings of `generate`", self.settings)
        checked = sampling_params_from(self.settings)
        sampling = (*FILTERS, *PENALTIES)
        changed = {
            name: value
            for name, value in self.settings.items()
            if name in sampling or getattr(checked, name, value) != DEFAULTS[name]
        }
        object.__setattr__(self, "settings", changed)

    def _check_combination(self) -> None:
        for name, task in TASK_OF_OPTION.items():
            if getattr(self, name) not in (None, False, {}) and self.task != task:
                raise InputError(
                    f"{name}: allowed only for the task {task!r}, and the task is {self.task!r}", code="other_task"
                )
        if self.system is not None and self.raw:
            raise InputError(
                "system and raw exclude each other: raw skips the chat template that system is part of",
                code="conflicting_options",
            )
        if self.image_column is not None and self.raw:
            raise InputError(
                "image_column and raw exclude each other: raw skips the chat template, which places images",
                code="conflicting_options",
            )
        if self.prompt is not None and self.prefix is not None:
            raise InputError(
                "prompt and prefix exclude each other: each is the text before every text", code="conflicting_options"
            )
        if clash := {self.column, *self.input_columns} & {*self.output_columns}:
            raise InputError(
                f"column {', '.join(sorted(clash))} is both read and written",
                code="column_conflict",
                hint="Choose another output_column.",
            )

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that are read, that of images last."""
        images = (self.image_column,) if self.image_column is not None else ()
        return (*self.text_columns, *images)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that prompts are made of."""
        return (self.column,) if self.prompt_template is None else template_fields(self.prompt_template)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that are added, that of errors last."""
        return (self.output_column, *EXTRA_OUTPUT_COLUMNS[self.task], ERROR_COLUMN)

    def identity(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON values."""
        defaults = {each.name: each.default for each in fields(self)}
        changed = {name: value for name, value in asdict(self).items() if value and value != defaults[name]}
        return dict(json.loads(json.dumps(changed, sort_keys=True)))

    def options(self) -> TaskOptions:
        """Return the keyword options that `Predictor` takes."""
        return cast(TaskOptions, asdict(self))


def task_spec(path: Path, options: Mapping[str, Any]) -> TaskSpec:
    """Return the task and options for a program. Without `task`, it is that of the program."""
    names = [each.name for each in fields(TaskSpec)]
    for name in options:
        if name not in names:
            raise InputError(
                f"unknown option {name!r}{did_you_mean(name, names)}",
                code="unknown_option",
                hint=f"Options: {', '.join(names)}.",
            )
    values = {name: value for name, value in options.items() if value is not None}
    values.setdefault("task", task_of(path))
    return TaskSpec(**values)


def task_of(path: Path) -> Task:
    """Return the task of a program by the task file beside it. A program without one is a language model."""
    file = task_path(path)
    if not file.exists():
        return "generate"
    try:
        name = read_json(file, MAX_TASK_FILE_BYTES)["task"]
    except (FormatError, TypeError, KeyError) as error:
        raise FormatError(
            f"not a JSON object with a task: {error}", argument=str(file), code="invalid_task_file"
        ) from error
    if name not in TASK_FILE_TASKS:
        supported = ", ".join(map(repr, TASK_FILE_TASKS))
        raise InputError(
            argument=str(path),
            expected=f"a language model, or a program for the task {supported}",
            got=repr(name),
            code="unsupported_task",
        )
    return TASK_FILE_TASKS[name]


def template_fields(template: str) -> tuple[str, ...]:
    """Return the columns that a template names, such as `{text}`. Other braces are doubled."""
    check_str(template, "prompt_template", "Summarize: {text}")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InputError(
            str(error), argument="prompt_template", code="invalid_template", hint="Double the braces of the text."
        ) from error
    names = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name or form or conversion or set(name) & set(".[]"):
            replacement = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise InputError(
                argument="prompt_template",
                expected="column names in braces, such as {text}",
                got=f"{{{replacement}}}",
                code="invalid_template",
                hint="Double the braces of the text.",
            )
        names.append(name)
    if not names:
        raise wrong_argument("prompt_template", "at least one column in braces, such as {text}", template, "no_column")
    return tuple(dict.fromkeys(names))


# -- identity ----------------------------------------------------------------------------------------------------------


def model_fingerprint(path: Path) -> str:
    """Return a hash of every file that affects the results: a program with the files beside it, or a whole bundle.

    Names of files beside a program do not matter.
    """
    if not path.exists():
        raise InputError(f"no such model{similar_paths(str(path))}", argument=str(path), code="missing_model")
    if path.is_dir():
        files = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("*")) if file.is_file()}
    else:
        files = {"program": path}
        files |= {name: companion for name in TOKENIZER_FILES if (companion := beside(path, name)) is not None}
        if (task := task_path(path)).exists():
            files["task"] = task
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name} {file_digest(file)}\n".encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(READ_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"cannot be read: {error}", argument=str(path), code="unreadable") from error
    return digest.hexdigest()
