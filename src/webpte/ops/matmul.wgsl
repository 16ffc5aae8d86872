{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> a: array<{{ type }}>;
@group(1) @binding(1) var<storage, read> b: array<{{ type }}>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ type }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let column = i % p.columns;
    let row = i / p.columns;  // over all batches
    let batch = row / p.rows;
    let a_start = row * p.inner;
    let b_start = batch * p.inner * p.columns + column;
    var sum = 0.0;
    for (var k = 0u; k < p.inner; k++) {
        sum += f32(a[a_start + k]) * f32(b[b_start + k * p.columns]);
    }
    y[i] = {{ type }}(sum);
}
