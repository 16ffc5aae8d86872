{# The operands of a product of int8 codes, and what becomes of its sums. `coded`: the results are codes. #}
var<storage> x: array<u32>;
var<storage> w: array<u32>;
var<storage> scales: array<{{ scale_type }}>;
$$ if bias_type
var<storage> bias: array<{{ bias_type }}>;
$$ endif
var<storage> y: array<{{ result }}>;

$$ if coded
{$ include "q8/q8ta_codes.wgsl" $}

$$ endif
// Single bytes, as signed numbers.
fn x_byte(at: u32) -> i32 {
    return extractBits(bitcast<i32>(x[at >> 2u]), (at & 3u) * 8u, 8u);
}

fn w_byte(at: u32) -> i32 {
    return extractBits(bitcast<i32>(w[at >> 2u]), (at & 3u) * 8u, 8u);
}

// Return the values of the sums of a product, each in its channel.
fn values_of(sums: vec4<i32>, channel: vec4<u32>) -> vec4<f32> {
    let scale = vec4<f32>(
        f32(scales[channel.x]), f32(scales[channel.y]), f32(scales[channel.z]), f32(scales[channel.w])
    );
    var values = vec4<f32>(sums) * p.x_scale * scale;
$$ if bias_type
    values += vec4<f32>(f32(bias[channel.x]), f32(bias[channel.y]), f32(bias[channel.z]), f32(bias[channel.w]));
$$ endif
$$ if relu
    values = max(values, vec4<f32>());
$$ endif
    return values;
}

// Write up to four neighbours of the flat output; if they are codes, `first` is a multiple of 4.
fn put(first: u32, values: vec4<f32>, count: u32) {
$$ if coded
    y[first / 4u] = word_of(codes_of(values), count);
$$ else
    for (var k = 0u; k < count; k++) {
        y[first + k] = {{ result }}(values[k]);
    }
$$ endif
}
