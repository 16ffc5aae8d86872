{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ include "q8/q8ta_codes.wgsl" $}
{$ from "q8/q8ta_codes.wgsl" import operand_codes $}

var<storage> a: array<u32>;
var<storage> b: array<u32>;
var<storage> y: array<u32>;

$$ call per_thread("t")
{{ operand_codes(["a", "b"], flat) }}
    let a_values = (vec4<f32>(a_codes) - p.a_zero) * p.a_scale;
    let b_values = (vec4<f32>(b_codes) - p.b_zero) * p.b_scale;
    y[t] = word_of(codes_of(a_values + p.alpha * b_values), count);
$$ endcall
