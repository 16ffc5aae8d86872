{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read_write> y: array<{{ type }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let point = i / 2u;
    let at = select(point / p.width, point % p.width, i % 2u == 0u);
    y[i] = {{ type }}((f32(at) + p.offset) * p.stride);
}
