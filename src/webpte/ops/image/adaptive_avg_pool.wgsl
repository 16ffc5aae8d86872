{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

// Each output averages its share of the input; where the sizes do not divide, shares overlap.
$$ call per_thread()
    let plane = i / (p.out_width * p.out_height);
    let out_row = (i / p.out_width) % p.out_height;
    let out_column = i % p.out_width;
    let top = out_row * p.height / p.out_height;
    let bottom = ((out_row + 1u) * p.height + p.out_height - 1u) / p.out_height;
    let left = out_column * p.width / p.out_width;
    let right = ((out_column + 1u) * p.width + p.out_width - 1u) / p.out_width;
    var sum = 0.0;
    for (var row = top; row < bottom; row++) {
        let start = (plane * p.height + row) * p.width;
        var part = 0.0;
        for (var column = left; column < right; column++) {
            part += f32(x[start + column]);
        }
        sum += part;
    }
    y[i] = {{ type }}(sum / f32((bottom - top) * (right - left)));
$$ endcall
