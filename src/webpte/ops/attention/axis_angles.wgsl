{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> table: array<f32>;  // (2, P + N, W): angles of positions, then other rows
var<storage> axis_positions: array<i32>;  // (R, 3)
var<storage> y: array<f32>;  // (2, N + R, W): the other rows, then the angles of the batch

// A column takes the position of one axis.
$$ call per_thread()
    let column = i % p.width;
    let row = i / p.width % p.out_rows;
    let half = i / (p.width * p.out_rows) * p.table_rows;
    if (row < p.others) {
        y[i] = table[(half + p.positions + row) * p.width + column];
        return;
    }
    let third = column % 3u;
    let on_axis = (third == 1u && column < p.row_columns) || (third == 2u && column < p.patch_columns);
    let position = axis_positions[3u * (row - p.others) + select(0u, third, on_axis)] + live(p.start);
    let place = u32(clamp(position, 0, i32(p.positions) - 1));
    y[i] = table[(half + place) * p.width + column];
$$ endcall
