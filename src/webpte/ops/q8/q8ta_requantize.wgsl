{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ include "bytes.wgsl" $}
{$ include "q8/q8ta_codes.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<u32>;
@group(1) @binding(1) var<storage, read_write> y: array<u32>;

$$ call per_thread("t")
    let count = min(p.count - t * 4u, 4u);
$$ if flat
    let codes = signed_bytes(x[t]);
$$ else
    var codes = vec4<i32>();
    for (var k = 0u; k < count; k++) {
        let i = t * 4u + k;
{{ operand_positions(["x"]) }}
        codes[k] = signed_bytes(x[xi >> 2u])[xi & 3u];
    }
$$ endif
    var values = (vec4<f32>(codes) - p.x_zero) * p.x_scale;
$$ if relu
    values = max(values, vec4<f32>());
$$ endif
    y[t] = word_of(codes_of(values), count);
$$ endcall
