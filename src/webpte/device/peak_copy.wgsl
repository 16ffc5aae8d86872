{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(1) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

$$ call per_thread()
    y[i] = x[i];
$$ endcall
