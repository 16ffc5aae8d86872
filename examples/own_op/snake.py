"""audio::snake on the GPU: y = x + sin(alpha x)^2 / alpha, with one alpha for each column.

Importing this file registers the op; its kernel is snake.wgsl beside it.
"""

import numpy as np

from webpte.errors import ShapeError
from webpte.lowering import FLOATS, Context, Tensor, op
from webpte.wgsl import Uniforms, u32


class Snake(Uniforms):
    columns: u32


@op("audio.snake.default", kernels=("audio::snake.out",), dtypes=FLOATS)
def snake(cx: Context, x: Tensor, alpha: Tensor, *, out: Tensor) -> None:
    if alpha.dims != x.dims[-1:]:
        raise ShapeError(f"alpha {list(alpha.dims)} does not fit the last dim of {list(x.dims)}")
    out.dims = x.dims
    params = Snake(columns=x.dims[-1])
    cx.dispatch(
        "snake.wgsl", reads={"x": x, "alpha": alpha}, writes={"y": out}, params=params, threads=x.numel, type=x.wgsl
    )


@snake.reference
def _(x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return x + np.sin(alpha * x) ** 2 / alpha
