{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ include "bytes.wgsl" $}
{$ include "q8/q8ta_codes.wgsl" $}

@group(1) @binding(0) var<storage, read> a: array<u32>;
@group(1) @binding(1) var<storage, read> b: array<u32>;
@group(1) @binding(2) var<storage, read_write> y: array<u32>;

$$ call per_thread("t")
    let count = min(p.count - t * 4u, 4u);
$$ if flat
    let a_codes = signed_bytes(a[t]);
    let b_codes = signed_bytes(b[t]);
$$ else
    var a_codes = vec4<i32>();
    var b_codes = vec4<i32>();
    for (var k = 0u; k < count; k++) {
        let i = t * 4u + k;
{{ operand_positions(["a", "b"]) }}
        a_codes[k] = signed_bytes(a[ai >> 2u])[ai & 3u];
        b_codes[k] = signed_bytes(b[bi >> 2u])[bi & 3u];
    }
$$ endif
    let a_values = (vec4<f32>(a_codes) - p.a_zero) * p.a_scale;
    let b_values = (vec4<f32>(b_codes) - p.b_zero) * p.b_scale;
    y[t] = word_of(codes_of(a_values + p.alpha * b_values), count);
$$ endcall
