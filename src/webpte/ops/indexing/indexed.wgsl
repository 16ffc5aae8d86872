{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}
{$ include "choice.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read> index: array<i32>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
    var which = 0u;
{{ walk({"source": "strides", "which": "index_strides"}) }}
    y[i] = x[source + choice(index[which], p.size) * p.scale];
$$ endcall
