"""Draw what the network with audio::snake computes along a line through its inputs, waves.png.

pip install webpte matplotlib
python picture.py snake.pte waves.png
"""

import sys

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import snake  # noqa: F401 - registers the op

import webpte

ROWS = 64  # the bound of the program


def main(path: str, picture: str) -> None:
    along = np.linspace(-6, 6, 5 * ROWS, dtype=np.float32)
    inputs = along[:, None] * np.linspace(-1, 1, 16, dtype=np.float32)  # (320, 16)
    with webpte.load(path) as program:
        forward = program.method("forward")
        outputs = np.concatenate([forward(part) for part in np.split(inputs, 5)])  # (320, 4)
    figure, axes = plt.subplots(figsize=(6.4, 3.4), dpi=100)
    axes.plot(along, outputs, label=[f"output {n}" for n in range(4)])
    axes.set_xlabel("how far along the line")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(*sys.argv[1:3])
