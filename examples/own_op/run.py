"""Run a program with an op that webpte does not know: first without its kernel, then with it.

pip install webpte
python run.py snake.pte

snake.pte comes from export.py; the op is snake.py and snake.wgsl, and no list anywhere had to be edited.
"""

import sys

import numpy as np

import webpte


def main(path: str) -> None:
    x = np.linspace(-1, 1, 3 * 16, dtype=np.float32).reshape(3, 16)
    try:
        webpte.load(path).method("forward")
    except webpte.UnsupportedError as error:
        print("before:", error)

    import snake  # noqa: F401 - registers the op

    with webpte.load(path) as program:
        forward = program.method("forward")
        print("after:", len(forward.plan.flow.segments), "submit, result", forward(x).shape)
        for rows in (64, 1):  # the same lowering serves every live shape
            print("also:", forward(np.ones((rows, 16), np.float32)).shape)


if __name__ == "__main__":
    main(sys.argv[1])
