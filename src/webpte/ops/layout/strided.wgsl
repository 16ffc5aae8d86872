{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}
{$ set element = word if width == 1 else "vec4<" ~ word ~ ">" $}

var<storage> x: array<{{ element }}>;
var<storage> y: array<{{ element }}>;

$$ call per_thread()
    var source = u32(live(p.start)) * p.step;
{{ walk({"source": "strides"}) }}
    y[i] = x[source];
$$ endcall
