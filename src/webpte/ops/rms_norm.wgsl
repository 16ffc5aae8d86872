{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read> weight: array<{{ weight_type }}>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ type }}>;

// One invocation per row.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = thread_index(id, groups);
    if (row >= p.threads) {
        return;
    }
    let start = row * p.columns;
    var sum = 0.0;
    for (var k = 0u; k < p.columns; k++) {
        let v = f32(x[start + k]);
        sum += v * v;
    }
    let scale = inverseSqrt(sum / f32(p.columns) + p.eps);
    for (var k = 0u; k < p.columns; k++) {
        y[start + k] = {{ type }}(f32(x[start + k]) * scale * f32(weight[k]));
    }
}
