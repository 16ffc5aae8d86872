{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ set number = "f32" if result in ("f16", "f16w") else result $}

var<storage> x: array<{{ source }}>;
var<storage> y: array<{{ result }}>;

// One invocation per row along the dim.
$$ call per_thread("row")
    let start = (row / p.inner) * p.inner * p.size + row % p.inner;
    var total = {{ number }}(0);
    for (var k = 0u; k < p.size; k++) {
        let i = start + k * p.inner;
        total += {{ number }}(x[i]);
        y[i] = {{ result }}(total);
    }
$$ endcall
