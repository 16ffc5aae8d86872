{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ type }}>;

// WGSL need not have infinities: a masked element counts as the lowest finite value.
fn load(i: u32) -> f32 {
    return max(f32(x[i]), -3.4e38);
}

// One invocation per row.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = thread_index(id, groups);
    if (row >= p.threads) {
        return;
    }
    let start = (row / p.inner) * p.inner * p.size + row % p.inner;
    var highest = -3.4e38;
    for (var k = 0u; k < p.size; k++) {
        highest = max(highest, load(start + k * p.inner));
    }
    var sum = 0.0;
    for (var k = 0u; k < p.size; k++) {
        sum += exp(load(start + k * p.inner) - highest);
    }
    for (var k = 0u; k < p.size; k++) {
        let i = start + k * p.inner;
        y[i] = {{ type }}(exp(load(i) - highest) / sum);
    }
}
