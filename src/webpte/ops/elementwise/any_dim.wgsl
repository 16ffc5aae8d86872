{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "types.wgsl" import converted $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> y: array<u32>;

$$ call per_thread()
    let first = (i / p.inner) * p.inner * p.size + i % p.inner;
    var found = 0u;
    for (var k = 0u; k < p.size; k++) {
        found |= u32({{ converted("x[first + k * p.inner]", type, "bool") }});
    }
    y[i] = found;
$$ endcall
