{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
$$ if product
{$ include "q8/int8_codes.wgsl" $}
$$ endif
{$ from "q8/q8ta_codes.wgsl" import operand_codes $}

var<storage> a: array<u32>;
var<storage> b: array<u32>;
var<storage> y: array<u32>;

$$ call per_thread("t")
{{ operand_codes(["a", "b"], flat) }}
$$ if product
    let codes = codes_of((a_codes - p.a_zero) * (b_codes - p.b_zero), vec4<f32>(p.scale));
$$ else
    let sums = p.bias + a_codes * p.a_factor + b_codes * p.b_factor;
    let codes = clamp((sums >> vec4<u32>(p.shift)) + p.zero, vec4<i32>(p.low), vec4<i32>(p.high));
$$ endif
    y[t] = word_of(codes, count);
$$ endcall
