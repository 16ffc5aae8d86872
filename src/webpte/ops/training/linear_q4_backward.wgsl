{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> d_out: array<{{ type }}>;  // (M, N)
var<storage> w: array<u32>;  // (N, K / 2) bytes, a code in each half
var<storage> scales: array<{{ scale_type }}>;  // (K / group, at least N)
var<storage> d_x: array<{{ type }}>;  // (M, K)

$$ if words
{$ include "weight_formats/int4.wgsl" $}

// Each invocation owns the columns of one word of the weight, in one row.
$$ else
// One invocation per output: groups and rows of the weight may begin anywhere.
$$ endif
$$ call per_thread()
    let k = (i % p.row_runs) * {{ 8 if words else 1 }}u;
    let row = i / p.row_runs;
    let d_row = row * p.inner + p.first;
    let s = (k / p.group) * p.scale_stride + p.first;
$$ if words
    var low = vec4<f32>();
    var high = vec4<f32>();
    for (var n = 0u; n < p.rows; n++) {
        let d = f32(d_out[d_row + n]) * f32(scales[s + n]);
        let word = w[n * p.row_runs + k / 8u];
        low += d * codes(word);
        high += d * codes(word >> 16u);
    }
    let first = row * p.columns + k;
$$ for c in range(8)
    d_x[first + {{ c }}u] = {{ type }}({{ "f32(d_x[first + " ~ c ~ "u]) + " if more }}{{ "low" if c < 4 else "high" }}[{{ c % 4 }}]);
$$ endfor
$$ else
    var total = 0.0;
    for (var n = 0u; n < p.rows; n++) {
        let at = n * p.columns + k;
        let code = extractBits(w[at >> 3u], (at & 7u) * 4u, 4u);
        total += f32(d_out[d_row + n]) * f32(scales[s + n]) * (f32(code) - 8.0);
    }
    let first = row * p.columns + k;
    d_x[first] = {{ type }}({{ "f32(d_x[first]) + " if more }}total);
$$ endif
$$ endcall
