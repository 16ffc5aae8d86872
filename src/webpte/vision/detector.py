"""`Detector`: what is where in a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..runtime import Program
from ..runtime.checks import described
from ..runtime.task_program import TaskProgram
from ..task_file import TaskFile
from .images import pictures
from .numbers import check_program, softmax
from .processing import Size, read_processing

if TYPE_CHECKING:
    from PIL import Image

    from .images import Picture


class Detection(NamedTuple):
    """A thing that was found."""

    label: str
    score: float  # 0 to 1
    box: tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the picture as it was given
    number: int  # of the class


class Detector(TaskProgram):
    """A detector of things in pictures.

    Each is a path, the bytes of a file, a PIL image or an array of uint8 (height, width, 3)::

        with webpte.vision.Detector.load("yolos.pte") as detector:
            for label, score, box, _ in detector(["street.jpg"])[0]:
                print(f"{score:.1%} {label} at {box}")
    """

    task = "object detection"

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self.labels = file.strings("labels")  #: of the classes, in their order
        self.processing = read_processing(file)  #: how pictures are prepared
        self._masked = file.boolean("mask")
        queries = file.integer("queries", 1)
        file.check_all_read()
        frame = self.processing.frame
        inputs = [(3, *frame), *([frame] if self._masked else [])]
        check_program(self.forward, path, inputs, [(queries, len(self.labels) + 1), (queries, 4)])

    def __call__(self, images: Iterable[Picture], *, threshold: float = 0.5) -> list[list[Detection]]:
        """For each picture what is in it with a score above `threshold`, the surest first."""
        number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool) and math.isfinite(threshold)
        if not number or not 0 <= threshold <= 1:
            raise InputError(f"threshold is a number from 0 to 1, not {described(threshold)}")
        return [self._detect(picture, threshold) for picture in pictures(images)]

    def _detect(self, picture: Image.Image, threshold: float) -> list[Detection]:
        pixels, there = self.processing(picture)
        logits, boxes = self.forward(pixels[None], *self._mask(there))  # (1, queries, classes + 1), (1, queries, 4)
        scores = softmax(logits[0])[:, :-1]  # the last class is "nothing"
        best = scores.argmax(axis=1)
        sure = scores.max(axis=1)
        corners = to_pixels(boxes[0], (picture.height, picture.width))
        order = [query for query in np.argsort(-sure, kind="stable") if sure[query] > threshold]
        return [self._found(int(best[query]), float(sure[query]), corners[query]) for query in order]

    def _found(self, number: int, score: float, corners: NDArray[np.float32]) -> Detection:
        left, top, right, bottom = (float(side) for side in corners)
        return Detection(self.labels[number], score, (left, top, right, bottom), number)

    def _mask(self, there: Size) -> list[NDArray[np.int64]]:
        """Where a padded frame holds the picture, for models that ask."""
        if not self._masked:
            return []
        mask = np.zeros((1, *self.processing.frame), np.int64)
        mask[:, : there[0], : there[1]] = 1
        return [mask]

    def __repr__(self) -> str:
        height, width = self.processing.frame
        return f"Detector({str(self.path)!r}, {len(self.labels)} classes, pictures of {height} x {width})"


def to_pixels(boxes: NDArray[np.float32], size: Size) -> NDArray[np.float32]:
    """Centre and size from 0 to 1 (N, 4), to left, top, right and bottom in pixels of the picture."""
    centre, half = boxes[:, :2], boxes[:, 2:] / 2
    corners = np.concatenate([centre - half, centre + half], axis=1)
    return corners * np.array([size[1], size[0]] * 2, np.float32)
