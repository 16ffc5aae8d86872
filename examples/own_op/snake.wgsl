{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read> alpha: array<{{ type }}>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ type }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let a = f32(alpha[i % p.columns]);
    let value = f32(x[i]);
    let s = sin(a * value);
    y[i] = {{ type }}(value + s * s / a);
}
