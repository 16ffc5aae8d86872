{$ include "kernel.wgsl" $}
{$ set first_output = 4 if biased else 3 $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;  // (M, K)
@group(1) @binding(1) var<storage, read> w: array<u32>;  // (N, row_bytes) bytes, a code in each half
@group(1) @binding(2) var<storage, read> scales: array<{{ scale_type }}>;  // (K / group, at least N)
$$ if biased
@group(1) @binding(3) var<storage, read> bias: array<{{ bias_type }}>;
$$ endif
@group(1) @binding({{ first_output }}) var<storage, read_write> y: array<{{ out_type }}>;  // (M, N)

// One invocation per output, one code at a time: groups and rows may begin anywhere.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let n = i % p.columns;
    let row = i / p.columns;
    let first_code = n * p.row_codes;
    var k = 0u;
    var sum = 0.0;
    for (var g = 0u; g < p.groups; g++) {
        var part = 0.0;
        let end = min(k + p.group, p.inner);
        for (; k < end; k++) {
            let at = first_code + k;
$$ if high_first
            let code = extractBits(w[at >> 3u], ((at ^ 1u) & 7u) * 4u, 4u);
$$ else
            let code = extractBits(w[at >> 3u], (at & 7u) * 4u, 4u);
$$ endif
            part += f32(x[row * p.inner + k]) * (f32(code) - 8.0);
        }
        sum += f32(scales[g * p.scale_stride + p.first + n]) * part;
    }
$$ if biased
    sum += f32(bias[p.first + n]);
$$ endif
    y[row * p.out_columns + p.first + n] = {{ out_type }}(sum);
}
