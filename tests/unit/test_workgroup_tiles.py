"""Which tile of a matrix product with many rows a GPU gets."""

from __future__ import annotations

import pytest

from webpte.ops.matmul.product import LARGE, SMALL, WIDE, ProductShape, preferred_tiles
from webpte.wgsl import Caps


@pytest.mark.parametrize(
    ("rows", "columns", "registers", "best"),
    [
        (512, 2048, 128, WIDE),
        (255, 2048, 128, WIDE),
        (128, 2048, 128, LARGE),  # 64 tiles of 64 invocations would leave cores of a large GPU without work
        (512, 2048, 80, LARGE),
        (17, 256, 128, SMALL),
        (17, 256, 64, SMALL),
    ],
)
def test_preferred_tile_keeps_cores_busy_and_fits_registers(rows, columns, registers, best):
    tiles = preferred_tiles(Caps(registers=registers), ProductShape(1, rows, 2048, columns))
    assert tiles[0] is best and len(set(tiles)) == len(tiles)
    assert (WIDE in tiles) == (registers == 128)


@pytest.mark.parametrize("tile", [SMALL, LARGE, WIDE])
def test_tile_fits_the_workgroup_memory_and_invocations_of_every_device(tile):
    assert tile.workgroup <= 256
    assert 2 * tile.size * tile.quads * 16 <= 16384
