{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "types.wgsl" import converted $}

var<storage> x: array<{{ type }}>;
var<storage> y: array<u32>;

$$ call per_thread()
    let first = (i / p.inner) * p.inner * p.size + i % p.inner;
    var found = 0u;
    for (var k = 0u; k < p.size; k++) {
        found |= u32({{ converted("x[first + k * p.inner]", type, "bool") }});
    }
    y[i] = found;
$$ endcall
