{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ include "bytes.wgsl" $}

var<storage> x: array<f32>;
var<storage> lows: array<f32>;
var<storage> highs: array<f32>;
var<storage> y: array<u32>;

{$ include "q8/int8_range.wgsl" $}

// Each invocation owns four neighbours of the output, and fetches their numbers one by one.
$$ call per_thread("t")
    let count = min(p.count - t * 4u, 4u);
    var codes = vec4<i32>();
    for (var k = 0u; k < count; k++) {
        let i = t * 4u + k;
{{ operand_positions(["x"], flat) }}
        let image = i / p.image;
        codes[k] = i32(clamp(round(x[xi] * rate_of(image)) + zero_of(image), -128.0, 127.0));
    }
    y[t] = word_of(codes, count);
$$ endcall
