{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "floats.wgsl" $}

var<storage> x: array<{{ type }}>;
var<storage> grid: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

// Return the pixel at a position in [-1, 1].
fn to_pixel(at: f32, size: u32) -> f32 {
$$ if aligned
    return (at + 1.0) * 0.5 * f32(size - 1u);
$$ else
    return ((at + 1.0) * f32(size) - 1.0) * 0.5;
$$ endif
}

// Return whether a position is NaN or infinite, by its bits.
fn is_nowhere(at: f32) -> bool {
    return is_nan(at) || is_infinite(at);
}

// Return a position moved into the image, or kept just outside if that counts as zero. NaN and infinities are outside,
// or at the start of the image where there is no outside.
fn inside(at: f32, size: u32) -> f32 {
    let last = f32(size) - 1.0;
$$ if padding == "zeros"
    return select(clamp(at, -4.0, last + 4.0), -4.0, is_nowhere(at));
$$ elif padding == "border"
    return select(clamp(at, 0.0, last), 0.0, is_nan(at));
$$ else
    if (is_nowhere(at)) {
        return 0.0;
    }
$$ if aligned
    let low = 0.0;
    let span = last;
$$ else
    let low = -0.5;
    let span = last + 1.0;
$$ endif
    if (span == 0.0) {
        return 0.0;
    }
    let away = abs(at - low);
    let turns = floor(away / span);
    let rest = away - turns * span;
    let odd = turns - 2.0 * floor(turns * 0.5);
    return clamp(select(rest, span - rest, odd == 1.0) + low, 0.0, last);
$$ endif
}

// A pixel, or zero outside the image.
fn pixel(image: u32, row: i32, column: i32) -> f32 {
    if (row < 0 || row >= i32(p.height) || column < 0 || column >= i32(p.width)) {
        return 0.0;
    }
    return f32(x[(image * p.height + u32(row)) * p.width + u32(column)]);
}
$$ if mode == "bicubic"

const STEEPNESS = -0.75;  // of PyTorch's cubic kernel

// The weight of a tap at this distance.
fn cubic(distance: f32) -> f32 {
    let d = abs(distance);
    if (d <= 1.0) {
        return ((STEEPNESS + 2.0) * d - (STEEPNESS + 3.0)) * d * d + 1.0;
    }
    return STEEPNESS * (((d - 5.0) * d + 8.0) * d - 4.0);
}

fn sample(image: u32, at_x: f32, at_y: f32) -> f32 {
    let left = floor(at_x);
    let top = floor(at_y);
    var sum = 0.0;
    for (var i = 0u; i < 4u; i++) {
        let row = top + f32(i) - 1.0;
        let from_row = i32(inside(row, p.height));
        var line = 0.0;
        for (var j = 0u; j < 4u; j++) {
            let column = left + f32(j) - 1.0;
            line += cubic(at_x - column) * pixel(image, from_row, i32(inside(column, p.width)));
        }
        sum += cubic(at_y - row) * line;
    }
    return sum;
}
$$ elif mode == "nearest"

fn sample(image: u32, at_x: f32, at_y: f32) -> f32 {
    return pixel(image, i32(round(inside(at_y, p.height))), i32(round(inside(at_x, p.width))));
}
$$ else

fn sample(image: u32, at_x: f32, at_y: f32) -> f32 {
    let from_x = inside(at_x, p.width);
    let from_y = inside(at_y, p.height);
    let left = floor(from_x);
    let top = floor(from_y);
    let part_x = from_x - left;
    let part_y = from_y - top;
    let column = i32(left);
    let row = i32(top);
    let above = pixel(image, row, column) * (1.0 - part_x) + pixel(image, row, column + 1) * part_x;
    let below = pixel(image, row + 1, column) * (1.0 - part_x) + pixel(image, row + 1, column + 1) * part_x;
    return above * (1.0 - part_y) + below * part_y;
}
$$ endif

$$ call per_thread()
    let image = i / p.points;  // over all channels
    let point = (image / p.channels) * p.points + i % p.points;
    let at_x = to_pixel(f32(grid[2u * point]), p.width);
    let at_y = to_pixel(f32(grid[2u * point + 1u]), p.height);
    var value = sample(image, at_x, at_y);
$$ if mode == "bicubic" or (mode == "bilinear" and padding == "zeros")
    // Weights by the distance to nowhere.
    if (is_nowhere(at_x) || is_nowhere(at_y)) {
        value = nan_like(value);
    }
$$ endif
    y[i] = {{ type }}(value);
$$ endcall
