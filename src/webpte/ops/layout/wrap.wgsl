{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
$$ call walk({})
        let moved = at + p.shifts[k >> 2u][k & 3u];
        source += (moved % p.sizes[k >> 2u][k & 3u]) * p.strides[k >> 2u][k & 3u];
$$ endcall
    y[i] = x[source];
$$ endcall
