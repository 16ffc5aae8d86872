"""`Classifier`: what a picture shows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime import Program
from ..runtime.checks import whole
from ..runtime.task_program import TaskProgram
from ..task_file import TaskFile
from .images import pictures
from .numbers import check_program, sigmoid, softmax
from .processing import read_processing

if TYPE_CHECKING:
    from .images import Picture

SCORES = {"softmax": softmax, "sigmoid": sigmoid}


class Prediction(NamedTuple):
    """A class that a picture may be of."""

    label: str
    score: float  # 0 to 1
    number: int  # of the class


class Classifier(TaskProgram):
    """A classifier of pictures.

    Each is a path, the bytes of a file, a PIL image or an array of uint8 (height, width, 3)::

        with webpte.vision.Classifier.load("vit.pte") as classifier:
            for label, score, _ in classifier(["cat.jpg"])[0]:
                print(f"{score:.1%} {label}")
    """

    task = "image classification"

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self.labels = file.strings("labels")  #: of the classes, in their order
        self.processing = read_processing(file)  #: how pictures are prepared
        self._scores = SCORES[file.choice("scores", [*SCORES])]
        file.check_all_read()
        shape = (3, *self.processing.frame)
        self.max_batch = check_program(self.forward, path, [shape], [(len(self.labels),)])  #: pictures in one call

    def __call__(self, images: Iterable[Picture], *, top: int = 5) -> list[list[Prediction]]:
        """For each picture the likeliest classes, `top` of them or all there are, the likeliest first."""
        count = whole(top, "top", 1)
        found = self.scores(images)  # (n, classes)
        best = np.argsort(-found, axis=1, kind="stable")[:, :count]
        return [
            [Prediction(self.labels[i], float(row[i]), int(i)) for i in order]
            for row, order in zip(found, best, strict=True)
        ]

    def scores(self, images: Iterable[Picture]) -> NDArray[np.float32]:
        """For each picture the score of every class: (n, classes)."""
        opened = pictures(images)
        found = np.empty((len(opened), len(self.labels)), np.float32)
        for start in range(0, len(opened), self.max_batch):
            some = opened[start : start + self.max_batch]
            pixels = np.stack([self.processing(picture)[0] for picture in some])  # (B, 3, H, W)
            found[start : start + len(some)] = self.pixel_scores(pixels)
        return found

    def pixel_scores(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(B, classes) of pictures that `processing` has prepared, (B, 3, H, W); `max_batch` of them at most."""
        return self._scores(np.asarray(self.forward(pixels)))

    def __repr__(self) -> str:
        height, width = self.processing.frame
        return f"Classifier({str(self.path)!r}, {len(self.labels)} classes, pictures of {height} x {width})"
