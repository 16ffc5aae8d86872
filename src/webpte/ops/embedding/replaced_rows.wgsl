{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ word }}>;  // (R, N)
var<storage> pool: array<{{ word }}>;  // (P, N)
var<storage> tokens: array<i32>;  // (R,)
var<storage> y: array<{{ word }}>;

// A token below 0 names a row of the pool: -1 the first, -2 the second.
$$ call per_thread()
    let token = tokens[i / p.width];
    if (token < 0) {
        y[i] = pool[min(u32(-1 - token), p.rows - 1u) * p.width + i % p.width];
    } else {
        y[i] = x[i];
    }
$$ endcall
