{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<vec4<f32>>;
var<storage> y: array<vec4<f32>>;

$$ call per_thread()
    y[i] = x[i];
$$ endcall
