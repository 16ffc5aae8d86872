{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> table: array<{{ word }}>;
@group(1) @binding(1) var<storage, read> indices: array<i32>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ word }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    // An index outside the table stays inside the buffer; it cannot be reported from here.
    let row = clamp(indices[i / p.columns], 0, i32(p.rows) - 1);
    y[i] = table[u32(row) * p.columns + i % p.columns];
}
