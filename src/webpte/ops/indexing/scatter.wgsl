{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

var<storage> x: array<{{ word }}>;
var<storage> y: array<{{ word }}>;

$$ call per_thread()
    var target_at = u32(live(p.start)) * p.step;
{{ walk({"target_at": "strides"}) }}
    y[target_at] = x[i];
$$ endcall
