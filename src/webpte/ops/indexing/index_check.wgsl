{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> index: array<i32>;
var<storage> y: array<i32>;

// Invocation t checks every p.threads-th position.
$$ call per_thread("t")
    var wrong = 0;
    for (var i = t; i < p.count; i += p.threads) {
        let at = index[i];
        if (at < p.low || at >= p.size) {
            wrong = at;
        }
    }
    y[t] = wrong;
$$ endcall
