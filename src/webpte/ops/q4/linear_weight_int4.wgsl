{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
var<storage> x: array<{{ type }}>;  // (M, K)
var<storage> weight: array<u32>;  // (N, K / 2) bytes, a code in each half
var<storage> scales_and_zeros: array<{{ scale_type }}>;  // (K / group, N, 2)
var<storage> y: array<{{ result }}>;  // (M, N)

// One invocation per output. The zero of a group meets the sum of its inputs.
$$ call per_thread()
    let n = i % p.part;
    let row = i / p.part;
    let words = p.inner / 8u;
    var sum = 0.0;
    for (var word = 0u; word < words; word += p.group) {
        var product = 0.0;
        var inputs = 0.0;
        for (var k = word; k < word + p.group; k++) {
            let packed = weight[n * words + k];
            let at = row * p.inner + k * 8u;
            for (var byte = 0u; byte < 4u; byte++) {
                let even = f32(x[at + 2u * byte]);
                let odd = f32(x[at + 2u * byte + 1u]);
                product += even * (f32(extractBits(packed, 8u * byte + 4u, 4u)) - 8.0);
                product += odd * (f32(extractBits(packed, 8u * byte, 4u)) - 8.0);
                inputs += even + odd;
            }
        }
        let coding = ((word / p.group) * p.columns + p.first + n) * 2u;
        sum += f32(scales_and_zeros[coding]) * product + f32(scales_and_zeros[coding + 1u]) * inputs;
    }
    y[row * p.columns + p.first + n] = {{ result }}(sum);
$$ endcall
