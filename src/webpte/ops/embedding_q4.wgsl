{$ include "kernel.wgsl" $}
{$ include "choice.wgsl" $}
{$ from "packed.wgsl" import fetched, stored $}
{$ set first_output = 4 if zero_type else 3 $}

@group(1) @binding(0) var<storage, read> codes: array<u32>;  // (V, E / 2) bytes, a code in each half
@group(1) @binding(1) var<storage, read> scales: array<{{ scale_type }}>;  // (V, E / group)
@group(1) @binding(2) var<storage, read> indices: array<i32>;
$$ if zero_type
@group(1) @binding(3) var<storage, read> zeros: array<{{ stored(zero_type) }}>;
$$ endif
@group(1) @binding({{ first_output }}) var<storage, read_write> y: array<{{ type }}>;

// Each invocation makes the values of {{ run }} neighbouring bytes of one row.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let row = choice(indices[i / p.row_runs], p.size);
    if (row < p.first || row - p.first >= p.rows) {
        return;  // in another part of the table
    }
    let start = (i % p.row_runs) * {{ run }}u;
    let first_byte = (row - p.first) * p.row_bytes + start;
    for (var b = 0u; b < {{ run }}u; b++) {
        let at = first_byte + b;
        let pair = extractBits(codes[at >> 2u], (at & 3u) * 8u, 8u);
$$ for half in range(2)
$$ if half == (1 if high_first else 0)
        let code{{ half }} = f32(pair & 15u) - 8.0;
$$ else
        let code{{ half }} = f32(pair >> 4u) - 8.0;
$$ endif
        let s{{ half }} = row * p.row_groups + ((start + b) * 2u + {{ half }}u) / p.group;
        let zero{{ half }} = {{ fetched("zeros", "s" ~ half, zero_type) if zero_type else "0.0" }};
        y[(i * {{ run }}u + b) * 2u + {{ half }}u] = {{ type }}((code{{ half }} - zero{{ half }}) * f32(scales[s{{ half }}]));
$$ endfor
    }
}
