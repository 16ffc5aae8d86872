{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> y: array<{{ type }}>;

$$ call per_thread()
    let point = i / 2u;
    let at = select(point / p.width, point % p.width, i % 2u == 0u);
    y[i] = {{ type }}((f32(at) + p.offset) * p.stride);
$$ endcall
