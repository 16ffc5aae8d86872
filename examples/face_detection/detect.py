"""Find faces in a picture with MTCNN, and mark them in a copy of it.

pip install webpte pillow
python detect.py . faces.png marked.png

The first argument is the folder with pnet.pte, rnet.pte and onet.pte, which export.py writes. A picture to try it on
comes from draw.py.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import webpte

SMALLEST_FACE = 40  # pixels
SHRINK = 0.709  # each level of the pyramid has half the area of the last
CELL, STRIDE = 12, 2  # pixels that one cell of pnet sees, and from one cell to the next
LIKELY = (0.6, 0.7, 0.7)  # what is kept after each network
MOST_CROPS = 32  # the bound that rnet and onet were exported with


class Detector:
    """Three networks in a row: pnet proposes, rnet refuses most of it, onet decides and finds the eyes."""

    def __init__(self, folder: Path) -> None:
        self.programs = [webpte.load(folder / f"{name}.pte") for name in ("pnet", "rnet", "onet")]
        self.pnet, self.rnet, self.onet = (program.method("forward") for program in self.programs)

    def __call__(self, image: Image.Image) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """For each face, the surest first: how likely it is, its box (4,) and its five landmarks (5, 2)."""
        boxes = squared(self.propose(image))
        if len(boxes):
            offsets, logits = self.rnet(crops(image, boxes, 24))
            boxes, _, _ = choose(boxes, offsets, face_likelihood(logits), LIKELY[1], overlap=0.7)
        if not len(boxes):
            return []
        boxes = squared(boxes)
        offsets, logits, points = self.onet(crops(image, boxes, 48))
        likely = face_likelihood(logits)
        left_top, size = boxes[:, None, :2], boxes[:, None, 2:] - boxes[:, None, :2]
        points = left_top + size * points.reshape(-1, 2, 5).transpose(0, 2, 1)  # (N, 5, 2)
        boxes, likely, kept = choose(boxes, offsets, likely, LIKELY[2], overlap=0.5)
        return list(zip(likely.tolist(), boxes, points[kept], strict=True))

    def propose(self, image: Image.Image) -> np.ndarray:
        """Boxes (N, 4) from all levels of an image pyramid: one program serves every size."""
        found, likely = [np.empty((0, 4))], [np.empty(0)]
        scale = CELL / SMALLEST_FACE
        while min(image.size) * scale > CELL:
            width, height = (int(np.ceil(side * scale)) for side in image.size)
            offsets, logits = self.pnet(pixels(image.resize((width, height), Image.Resampling.BILINEAR))[None])
            y, x = np.indices(logits.shape[2:])
            corners = np.stack([x * STRIDE, y * STRIDE, x * STRIDE + CELL, y * STRIDE + CELL]) / scale  # (4, H, W)
            rows = face_likelihood(logits)[0].ravel()  # (H*W,)
            boxes, rows, _ = choose(corners.reshape(4, -1).T, offsets.reshape(4, -1).T, rows, LIKELY[0], overlap=0.5)
            found.append(boxes)
            likely.append(rows)
            scale *= SHRINK
        boxes, rows = np.concatenate(found), np.concatenate(likely)
        return boxes[distinct(boxes, rows, overlap=0.7)][:MOST_CROPS]


def choose(
    boxes: np.ndarray, offsets: np.ndarray, likely: np.ndarray, least: float, overlap: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Move the likely boxes by their offsets and drop those that mean the same face; also which ones were kept."""
    kept = np.flatnonzero(likely > least)
    size = boxes[kept, 2:] - boxes[kept, :2]
    moved = boxes[kept] + offsets[kept] * np.tile(size, 2)
    order = distinct(moved, likely[kept], overlap)
    return moved[order], likely[kept][order], kept[order]


def distinct(boxes: np.ndarray, likely: np.ndarray, overlap: float) -> list[int]:
    """The likeliest box, then the likeliest that overlaps no earlier one by more than `overlap` of their union."""
    kept: list[int] = []
    rest = likely.argsort()[::-1]
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    while len(rest):
        best, rest = int(rest[0]), rest[1:]
        kept.append(best)
        sides = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2])
        shared = sides.clip(min=0).prod(axis=1)
        rest = rest[shared <= overlap * (area[best] + area[rest] - shared)]
    return kept


def squared(boxes: np.ndarray) -> np.ndarray:
    """Boxes with the same centers whose sides are both the longer one."""
    center, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).max(axis=1, keepdims=True) / 2
    return np.hstack([center - half, center + half])


def crops(image: Image.Image, boxes: np.ndarray, side: int) -> np.ndarray:
    """(N, 3, side, side)"""
    return np.stack([pixels(image.resize((side, side), Image.Resampling.BILINEAR, inside(image, b))) for b in boxes])


def inside(image: Image.Image, box: np.ndarray) -> tuple[float, float, float, float]:
    left, top, right, bottom = box.tolist()
    return max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height)


def pixels(image: Image.Image) -> np.ndarray:
    """(3, H, W), from -1 to 1"""
    return (np.asarray(image, np.float32).transpose(2, 0, 1) - 127.5) / 128


def face_likelihood(logits: np.ndarray) -> np.ndarray:
    """The softmax of "no face" and "face" along dim 1, for "face"."""
    return 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))


def main(folder: Path, picture: Path, marked: Path) -> None:
    image = Image.open(picture).convert("RGB")
    copy = image.copy()
    draw = ImageDraw.Draw(copy)
    for likely, box, points in Detector(folder)(image):
        left, top, right, bottom = (round(side) for side in box.tolist())
        print(f"a face, {likely:.0%} sure, from ({left}, {top}) to ({right}, {bottom})")
        draw.rectangle((left, top, right, bottom), outline=(0, 255, 80), width=2)
        for x, y in points.tolist():
            draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=(255, 40, 40))
    copy.save(marked)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
