{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}
{$ include "choice.wgsl" $}

var<storage> x: array<{{ word }}>;
var<storage> index: array<i32>;
var<storage> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
    var which = 0u;
{{ walk({"source": "strides", "which": "index_strides"}) }}
    y[i] = x[source + choice(index[which], p.size) * p.scale];
$$ endcall
