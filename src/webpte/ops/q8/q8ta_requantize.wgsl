{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ include "q8/q8ta_codes.wgsl" $}
{$ from "q8/q8ta_codes.wgsl" import operand_codes $}

var<storage> x: array<u32>;
var<storage> y: array<u32>;

$$ call per_thread("t")
{{ operand_codes(["x"], flat) }}
    var values = (vec4<f32>(x_codes) - p.x_zero) * p.x_scale;
$$ if relu
    values = max(values, vec4<f32>());
$$ endif
    y[t] = word_of(codes_of(values), count);
$$ endcall
