{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

// Where in the input an output position falls.
fn source(at: u32, scale: f32) -> f32 {
$$ if aligned
    return f32(at) * scale;
$$ else
    return max((f32(at) + 0.5) * scale - 0.5, 0.0);
$$ endif
}

$$ call per_thread()
    let row = i / p.out_width;  // over all images
    let from_x = source(i % p.out_width, p.scale_x);
    let from_y = source(row % p.out_height, p.scale_y);
    let left = min(u32(from_x), p.width - 1u);
    let top = min(u32(from_y), p.height - 1u);
    let right = min(left + 1u, p.width - 1u);
    let bottom = min(top + 1u, p.height - 1u);
    let part_x = clamp(from_x - f32(left), 0.0, 1.0);
    let part_y = clamp(from_y - f32(top), 0.0, 1.0);
    let image = (row / p.out_height) * p.height;
    let upper = (image + top) * p.width;
    let lower = (image + bottom) * p.width;
    let above = f32(x[upper + left]) * (1.0 - part_x) + f32(x[upper + right]) * part_x;
    let below = f32(x[lower + left]) * (1.0 - part_x) + f32(x[lower + right]) * part_x;
    y[i] = {{ type }}(above * (1.0 - part_y) + below * part_y);
$$ endcall
