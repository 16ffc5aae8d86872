{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> results: array<vec4<f32>>;  // (R, chosen, N)
var<storage> scores: array<f32>;  // (R, chosen)
var<storage> y: array<vec4<f32>>;

$$ call per_thread()
    let row = i / p.quads;
    let first = row * p.chosen;
    var scale = p.factor;
$$ if normalized
    var total = 0.0;
    for (var j = 0u; j < p.chosen; j++) {
        total += scores[first + j];
    }
    scale /= total + p.eps;
$$ endif
    var sum = vec4<f32>();
    for (var j = 0u; j < p.chosen; j++) {
        sum += scores[first + j] * scale * results[(first + j) * p.quads + i % p.quads];
    }
    y[i] = sum;
$$ endcall
