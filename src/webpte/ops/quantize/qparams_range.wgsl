{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ type }}>;
var<storage> ranges: array<vec2<f32>>;

// The least and the greatest of every p.runs-th element of a row, and 0.
$$ call per_thread()
    let row = (i / p.runs) * p.width;
    var range = vec2<f32>();
    for (var k = i % p.runs; k < p.width; k += p.runs) {
        let value = f32(x[row + k]);
        range = vec2<f32>(min(range.x, value), max(range.y, value));
    }
    ranges[i] = range;
$$ endcall
