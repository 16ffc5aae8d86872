{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}

var<storage> x: {{ array_of(type) }};  // (rows, K)
var<storage> down: {{ array_of(down_type) }};  // (rows, W)
var<storage> b: {{ array_of(matrix_type) }};  // (N, R, K)
var<storage> adapters: array<i32>;  // (rows,), 0: none
var<storage> y: {{ array_of(type) }};

$$ call per_thread()
    let row = i / p.steps;
    let adapter = adapters[row];
    if (adapter <= 0) {
        y[i] = x[i];
        return;
    }
    let first = u32(adapter - 1) * p.rank * p.steps + i % p.steps;
    let start = row * p.width + p.first;
    var sum = {{ loaded("x[i]", type) }};
    for (var r = 0u; r < p.rank; r++) {
        sum += {{ loaded("down[start + r]", down_type) }} * {{ loaded("b[first + r * p.steps]", matrix_type) }};
    }
    y[i] = {{ storable("sum", type) }};
$$ endcall
