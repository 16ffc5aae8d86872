"""What is to be made of a row: checked once, in the process that asks, before a model is loaded anywhere."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from ..errors import FormatError, InputError
from ..llm.settings import SamplingParams, sampling_params_from
from ..runtime.checks import described, flag, near, one_of, text
from ..tasks import task_path

Task = Literal["embed", "generate", "classify"]
TASKS: tuple[Task, ...] = ("embed", "generate", "classify")
PROGRAMS: dict[str, Task] = {"embedding": "embed", "image classification": "classify"}  # what a program is for
OUTPUTS: dict[Task, str] = {"embed": "embedding", "generate": "generated", "classify": "label"}
MORE: dict[Task, tuple[str, ...]] = {  # columns beside it
    "embed": (),
    "generate": ("finish_reason", "prompt_tokens", "completion_tokens"),
    "classify": ("score",),
}
ONLY: dict[str, Task] = {  # options that mean something for one task
    "prompt": "embed",
    "prefix": "embed",
    "truncate": "embed",
    "prompt_template": "generate",
    "system": "generate",
    "raw": "generate",
    "parse_special": "generate",
    "settings": "generate",
}
ERROR = "error"


class WantedOptions(TypedDict, total=False):
    """What `Predictor` and `run` take by name."""

    task: Task | None
    column: str
    output_column: str | None
    prompt: str | None
    prefix: str | None
    truncate: bool
    prompt_template: str | None
    system: str | None
    raw: bool
    parse_special: bool
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """One task with its options. Two that are equal, by `identity`, make the same of the same rows."""

    task: Task
    column: str = "text"
    output_column: str = ""  # the name of what is made; OUTPUTS unless given
    prompt: str | None = None
    prefix: str | None = None
    truncate: bool = False
    prompt_template: str | None = None
    system: str | None = None
    raw: bool = False
    parse_special: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of(self.task, "task", TASKS)
        text(self.column, "column", "text")
        if not self.output_column:
            object.__setattr__(self, "output_column", OUTPUTS[self.task])
        text(self.output_column, "output_column", OUTPUTS[self.task])
        flag(self.truncate, "truncate")
        flag(self.raw, "raw")
        flag(self.parse_special, "parse_special")
        if not isinstance(self.settings, Mapping):
            raise InputError(
                f"settings are those of generate by name, not {described(self.settings)}", code="wrong_type"
            )
        checked = sampling_params_from(self.settings)
        usual = {each.name: getattr(SamplingParams(), each.name) for each in fields(SamplingParams)}
        said = {name: value for name, value in self.settings.items() if getattr(checked, name) != usual[name]}
        object.__setattr__(self, "settings", said)
        self._check_task()
        if self.system is not None and self.raw:
            raise InputError(
                "system is for the chat template, which raw leaves out; give one of them", code="conflicting_options"
            )
        if self.prompt is not None and self.prefix is not None:
            raise InputError(
                "prompt and prefix are both given; one says what to put before every text", code="conflicting_options"
            )
        if clash := {self.column, *self.columns} & {*self.made}:
            raise InputError(
                f"{', '.join(sorted(clash))} is read and written; give another name as output_column",
                code="column_conflict",
            )

    def _check_task(self) -> None:
        for name, task in ONLY.items():
            if getattr(self, name) not in (None, False, {}) and self.task != task:
                raise InputError(
                    f"{name} is an option of the task {task!r}, and this one is {self.task!r}", code="other_task"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """Which columns are read."""
        if self.prompt_template is None:
            return (self.column,)
        return template_fields(self.prompt_template)

    @property
    def made(self) -> tuple[str, ...]:
        """Which columns are added, the one of errors last."""
        return (self.output_column, *MORE[self.task], ERROR)

    def identity(self) -> dict[str, Any]:
        """All of it that is not as usual, as JSON has it."""
        usual = {each.name: each.default for each in fields(self)}
        said = {name: value for name, value in asdict(self).items() if value and value != usual[name]}
        return dict(json.loads(json.dumps(said, sort_keys=True)))

    def options(self) -> WantedOptions:
        """As `Predictor` takes it."""
        return cast(WantedOptions, asdict(self))


def wanted_from(path: Path, options: Mapping[str, Any]) -> Wanted:
    """Options by name, for a program; the task is what the program is for unless given."""
    known = [each.name for each in fields(Wanted)]
    for name in options:
        if name not in known:
            raise InputError(
                f"there is no option {name!r}{near(name, known)}; there are {', '.join(known)}", code="unknown_option"
            )
    given = {name: value for name, value in options.items() if value is not None}
    given.setdefault("task", task_of(path))
    return Wanted(**given)


def task_of(path: Path) -> Task:
    """What a program is for, as the file beside it says; a language model has none."""
    beside = task_path(path)
    if not beside.exists():
        return "generate"
    try:
        named = json.loads(beside.read_text(encoding="utf-8"))["task"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(
            f"{beside} is not a JSON object that names its task: {error}", code="invalid_task_file"
        ) from error
    if named not in PROGRAMS:
        raise InputError(
            f"{path} is for the task {named!r}; rows are embedded, answered or classified: {TASKS}",
            code="unsupported_task",
        )
    return PROGRAMS[named]


def template_fields(template: str) -> tuple[str, ...]:
    """The columns that a template names, such as `{text}`; braces of the text itself are doubled."""
    text(template, "prompt_template", "Summarise: {text}")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InputError(
            f"prompt_template: {error}. Columns are {{text}}, other braces are doubled", code="invalid_template"
        ) from error
    names = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name or form or conversion or set(name) & set(".[]"):
            shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise InputError(
                f"prompt_template names {{{shown}}}; a field is the name of a column and no more, such as {{text}}. "
                "Braces of the text itself are doubled",
                code="invalid_template",
            )
        names.append(name)
    if not names:
        raise InputError(
            "prompt_template names no column, such as {text}: every row would be asked the same", code="no_column"
        )
    return tuple(dict.fromkeys(names))
