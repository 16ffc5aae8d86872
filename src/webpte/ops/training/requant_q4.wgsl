{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> latent: array<{{ type }}>;  // (N, K)
var<storage> scales: array<{{ scale_type }}>;  // (K / group, at least N)
var<storage> codes: array<u32>;  // (N, K / 2) bytes

// -8 to 7, stored with 8 added. A group without a scale is all zeros.
fn code(n: u32, k: u32) -> u32 {
    let scale = f32(scales[(k / p.group) * p.scale_stride + n]);
    if (scale == 0.0) {
        return 8u;
    }
    return u32(clamp(round(f32(latent[n * p.columns + k]) / scale), -8.0, 7.0) + 8.0);
}

// Four bytes, a word, per invocation. If K is odd the last byte of a row has one code.
$$ call per_thread("t")
    let end = min(t * 4u + 4u, p.bytes);
    var word = 0u;
    for (var i = t * 4u; i < end; i++) {
        let n = i / p.row_bytes;
        let k = (i % p.row_bytes) * 2u;
        var pair = code(n, k);
        if (k + 1u < p.columns) {
            pair |= code(n, k + 1u) << 4u;
        }
        word |= pair << ((i & 3u) * 8u);
    }
    codes[t] = word;
$$ endcall
