{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}
{$ set element = word if width == 1 else "vec4<" ~ word ~ ">" $}

@group(1) @binding(0) var<storage, read> x: array<{{ element }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ element }}>;

$$ call per_thread()
    var source = u32(live(p.start)) * p.step;
{{ walk({"source": "strides"}) }}
    y[i] = x[source];
$$ endcall
