{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ set number = "f32" if result in ("f16", "f16w") else result $}

@group(1) @binding(0) var<storage, read> x: array<{{ source }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ result }}>;

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
