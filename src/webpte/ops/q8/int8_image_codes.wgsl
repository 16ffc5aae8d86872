{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ include "bytes.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<f32>;
@group(1) @binding(1) var<storage, read> lows: array<f32>;
@group(1) @binding(2) var<storage, read> highs: array<f32>;
@group(1) @binding(3) var<storage, read_write> y: array<u32>;

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
