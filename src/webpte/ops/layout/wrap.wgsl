{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

var<storage> x: array<{{ word }}>;
var<storage> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
$$ call walk({})
        let moved = at + p.shifts[k >> 2u][k & 3u];
        source += (moved % p.sizes[k >> 2u][k & 3u]) * p.strides[k >> 2u][k & 3u];
$$ endcall
    y[i] = x[source];
$$ endcall
