"""A program for a task, such as embedding texts: what is beside it is read first, and it is closed as programs are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self, Unpack

from ..task_file import TaskFile, read_task
from .checks import PathLike, check_path
from .loading import LoadOptions, load
from .method import Method
from .program import Program


class TaskProgram:
    """Base of `webpte.embed.Embedder` and others like it. Threads may share one."""

    task: ClassVar[str]

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        """`file` is asked for all its fields here; what does not fit the program is refused."""
        self.program = program
        self.path = path

    @classmethod
    def load(cls, path: PathLike, **options: Unpack[LoadOptions]) -> Self:
        """Open a program that `webpte export` wrote, with the files beside it. `options` are those of `webpte.load`."""
        file = Path(check_path(path, "path"))
        about = read_task(file, cls.task)
        program = load(file, **options)
        try:
            return cls(program, file, about)
        except BaseException:
            program.close()
            raise

    @property
    def forward(self) -> Method:
        """What runs on the device."""
        return self.program.method("forward")

    def close(self) -> None:
        """Release the GPU memory."""
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
