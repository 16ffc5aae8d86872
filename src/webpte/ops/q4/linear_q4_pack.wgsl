{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "packed.wgsl" import fetched, stored $}

var<storage> x: array<{{ type }}>;  // (M, K)
var<storage> scales: array<{{ scale_type }}>;  // (M)
var<storage> zeros: array<{{ stored(zero_type) }}>;  // (M)
var<storage> y: array<vec2<u32>>;  // (M, 1 + K / 8)

// A row of the result has its scale and zero, then eight codes in each pair of words: those of even k, those of odd k.
// A word of the weight is unpacked in the same way.
$$ call per_thread()
    let row = i / p.pairs;
    let at = i % p.pairs;
    let scale = f32(scales[row]);
    let zero = {{ fetched("zeros", "row", zero_type) }};
    if (at == 0u) {
        y[i] = vec2<u32>(bitcast<u32>(scale), bitcast<u32>(i32(zero)));
        return;
    }
    var pair = vec2<u32>();
    for (var k = 0u; k < 8u; k++) {
        let value = f32(x[(row * (p.pairs - 1u) + at - 1u) * 8u + k]);
        // Multiplied by the reciprocal, as torchao does: a quotient may round to another neighbour.
        let code = clamp(round(value * (1.0 / scale)) + zero, -128.0, 127.0);
        pair[k & 1u] |= (u32(i32(code)) & 255u) << ((k >> 1u) * 8u);
    }
    y[i] = pair;
$$ endcall
