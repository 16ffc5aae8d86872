{$ include "kernel.wgsl" $}

var<storage> x: array<{{ type }}>;
var<storage> alpha: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

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
