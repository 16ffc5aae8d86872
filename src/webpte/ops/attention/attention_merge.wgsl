{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, storable $}

var<storage> partial: array<vec4<f32>>;
var<storage> y: {{ array_of(type) }};

// One invocation per query row and load: the parts of a row, each relative to its own highest score, become one.
$$ call per_thread()
    let stride = p.value_steps + 1u;
    let first = (i / p.value_steps) * p.splits * stride;
    var highest = -3.4e38;
    var weight = 0.0;
    var sum = vec4<f32>();
    for (var s = 0u; s < p.splits; s++) {
        let at = first + s * stride;
        let found = partial[at];
        let higher = max(highest, found.x);
        let keep = exp(highest - higher);
        let add = exp(found.x - higher);
        highest = higher;
        weight = weight * keep + found.y * add;
        sum = sum * keep + partial[at + 1u + i % p.value_steps] * add;
    }
    let out = sum / max(weight, 1.0);
    y[i] = {{ storable("out", type) }};
$$ endcall
