{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var target_at = u32(live(p.start)) * p.step;
{{ walk({"target_at": "strides"}) }}
    y[target_at] = x[i];
$$ endcall
