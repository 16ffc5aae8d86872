"""`Classifier` and `Detector`: images to classes, or to boxes around objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime import Method, Program
from ..runtime.checks import check_int, wrong_argument
from ..runtime.loading import TaskProgram
from ..task_file import TaskFile, other_export
from .images import Size, open_images, read_preprocessor

if TYPE_CHECKING:
    from PIL import Image

    from .images import ImageInput

Floats = NDArray[np.float32]


class Prediction(NamedTuple):
    """A class of an image, with its score."""

    label: str
    score: float  # 0 to 1
    class_id: int


class Classifier(TaskProgram):
    """An image classifier.

    An image is a path, the bytes of a file, a PIL image or an array of uint8 (height, width, 3)::

        with webpte.vision.Classifier.load("vit.pte") as classifier:
            for label, score, _ in classifier(["cat.jpg"])[0]:
                print(f"{score:.1%} {label}")
    """

    _task = "image classification"

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self.labels = file.strings("labels")  #: of the classes, by class id
        self._preprocessor = read_preprocessor(file)  #: prepares images for the program
        self._scores = SCORES[file.choice("scores", [*SCORES])]
        file.check_all_read()
        shape = (3, *self._preprocessor.frame)
        self.max_batch = check_program(self._forward, path, [shape], [(len(self.labels),)])  #: images per call

    def __call__(self, images: Iterable[ImageInput], *, top: int = 5) -> list[list[Prediction]]:
        """Return the `top` classes of each image, highest score first."""
        count = check_int(top, "top", 1)
        scores = self.scores(images)  # (n, classes)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        return [
            [Prediction(self.labels[i], float(row[i]), int(i)) for i in order]
            for row, order in zip(scores, best, strict=True)
        ]

    def scores(self, images: Iterable[ImageInput]) -> Floats:
        """Return the scores of all classes for each image: (n, classes)."""
        opened = open_images(images)
        scores = np.empty((len(opened), len(self.labels)), np.float32)
        for start in range(0, len(opened), self.max_batch):
            batch = opened[start : start + self.max_batch]
            pixels = np.stack([self.preprocess(image) for image in batch])  # (B, 3, H, W)
            scores[start : start + len(batch)] = self.compute_batch(pixels)
        return scores

    def preprocess(self, image: Image.Image) -> Floats:
        """Return the pixels (3, H, W) of an image as `compute_batch` takes them."""
        return self._preprocessor(image)[0]

    def compute_batch(self, pixels: Floats) -> Floats:
        """Return the scores (B, classes) of preprocessed images (B, 3, H, W), at most `max_batch` of them."""
        return self._scores(np.asarray(self._forward(pixels)))

    def __repr__(self) -> str:
        height, width = self._preprocessor.frame
        return f"Classifier({str(self.path)!r}, {len(self.labels)} classes, images of {height} x {width})"


class Detection(NamedTuple):
    """An object in an image."""

    label: str
    score: float  # 0 to 1
    box: tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the original image
    class_id: int


class Detector(TaskProgram):
    """An object detector.

    An image is a path, the bytes of a file, a PIL image or an array of uint8 (height, width, 3)::

        with webpte.vision.Detector.load("yolos.pte") as detector:
            for label, score, box, _ in detector(["street.jpg"])[0]:
                print(f"{score:.1%} {label} at {box}")
    """

    _task = "object detection"

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self.labels = file.strings("labels")  #: of the classes, by class id
        self._preprocessor = read_preprocessor(file)  #: prepares images for the program
        self._masked = file.boolean("mask")
        queries = file.integer("queries", 1)
        file.check_all_read()
        frame = self._preprocessor.frame
        inputs = [(3, *frame), *([frame] if self._masked else [])]
        check_program(self._forward, path, inputs, [(queries, len(self.labels) + 1), (queries, 4)])

    def __call__(self, images: Iterable[ImageInput], *, threshold: float = 0.5) -> list[list[Detection]]:
        """Return the objects in each image with a score above `threshold`, highest score first."""
        number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool) and math.isfinite(threshold)
        if not number or not 0 <= threshold <= 1:
            raise wrong_argument("threshold", "a number from 0 to 1", threshold, "out_of_range")
        return [self._detect(image, threshold) for image in open_images(images)]

    def _detect(self, image: Image.Image, threshold: float) -> list[Detection]:
        pixels, size = self._preprocessor(image)
        logits, boxes = self._forward(pixels[None], *self._mask(size))  # (1, queries, classes + 1), (1, queries, 4)
        scores = softmax(logits[0])[:, :-1]  # the last class is "no object"
        best = scores.argmax(axis=1)
        highest = scores.max(axis=1)
        corners = to_pixels(boxes[0], (image.height, image.width))
        detections = []
        for query in np.argsort(-highest, kind="stable"):
            if highest[query] > threshold:
                left, top, right, bottom = (float(side) for side in corners[query])
                class_id, score = int(best[query]), float(highest[query])
                detections.append(Detection(self.labels[class_id], score, (left, top, right, bottom), class_id))
        return detections

    def _mask(self, size: Size) -> list[NDArray[np.int64]]:
        """Return the mask of the image in its padded frame, for programs that take one."""
        if not self._masked:
            return []
        mask = np.zeros((1, *self._preprocessor.frame), np.int64)
        mask[:, : size[0], : size[1]] = 1
        return [mask]

    def __repr__(self) -> str:
        height, width = self._preprocessor.frame
        return f"Detector({str(self.path)!r}, {len(self.labels)} classes, images of {height} x {width})"


def to_pixels(boxes: Floats, size: Size) -> Floats:
    """Convert boxes (N, 4) from relative center and size to left, top, right and bottom in pixels."""
    center, half = boxes[:, :2], boxes[:, 2:] / 2
    corners = np.concatenate([center - half, center + half], axis=1)
    return corners * np.array([size[1], size[0]] * 2, np.float32)


def softmax(logits: Floats) -> Floats:
    """Return the softmax along the last dim."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)


def sigmoid(logits: Floats) -> Floats:
    with np.errstate(over="ignore"):  # of e**-x, whose inverse is then 0
        return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


SCORES = {"softmax": softmax, "sigmoid": sigmoid}


def check_program(
    method: Method, path: Path, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> int:
    """Check the dims of all inputs and outputs after that of the batch. Return the largest batch."""
    bounds = [argument.bound or () for argument in (*method.inputs, *method.outputs)]
    expected = [*inputs, *outputs]
    if [bound[1:] for bound in bounds] != expected or len(method.inputs) != len(inputs):
        raise other_export(path, f"inputs and outputs of {expected} after the batch dim", bounds)
    return bounds[0][0]
