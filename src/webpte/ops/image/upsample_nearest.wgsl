{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ word }}>;
var<storage> y: array<{{ word }}>;

$$ call per_thread()
    let row = i / p.out_width;  // over all images
    let at_x = u32(floor(f32(i % p.out_width) * p.scale_x));
    let at_y = u32(floor(f32(row % p.out_height) * p.scale_y));
    let image = row / p.out_height;
    y[i] = x[(image * p.height + min(at_y, p.height - 1u)) * p.width + min(at_x, p.width - 1u)];
$$ endcall
