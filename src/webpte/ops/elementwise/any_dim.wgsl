{$ include "kernel.wgsl" $}
{$ from "types.wgsl" import converted $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let first = (i / p.inner) * p.inner * p.size + i % p.inner;
    var found = 0u;
    for (var k = 0u; k < p.size; k++) {
        found |= u32({{ converted("x[first + k * p.inner]", type, "bool") }});
    }
    y[i] = found;
}
