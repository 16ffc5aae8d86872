{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

// Positions are counted from the start of the padding, so that they are never negative.
$$ call per_thread()
    let plane = i / (p.out_width * p.out_height);
    let top = ((i / p.out_width) % p.out_height) * p.stride_y;
    let left = (i % p.out_width) * p.stride_x;
    let first_row = max(top, p.padding_y);
    let end_row = min(top + p.kernel_y, p.padding_y + p.height);
    let first_column = max(left, p.padding_x);
    let end_column = min(left + p.kernel_x, p.padding_x + p.width);
    var sum = 0.0;
    for (var row = first_row; row < end_row; row++) {
        let start = (plane * p.height + row - p.padding_y) * p.width;
        for (var column = first_column; column < end_column; column++) {
            sum += f32(x[start + column - p.padding_x]);
        }
    }
$$ if padded
    let rows = min(p.kernel_y, p.height + 2u * p.padding_y - top);
    let columns = min(p.kernel_x, p.width + 2u * p.padding_x - left);
$$ else
    let rows = end_row - first_row;
    let columns = end_column - first_column;
$$ endif
    let divisor = select(p.divisor, rows * columns, p.divisor == 0u);
    y[i] = {{ type }}(sum / f32(divisor));
$$ endcall
