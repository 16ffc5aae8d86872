{$ include "kernel.wgsl" $}
{$ set number = "f32" if result in ("f16", "f16w") else result $}

@group(1) @binding(0) var<storage, read> x: array<{{ source }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ result }}>;

// One invocation per row along the dim.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = thread_index(id, groups);
    if (row >= p.threads) {
        return;
    }
    let start = (row / p.inner) * p.inner * p.size + row % p.inner;
    var total = {{ number }}(0);
    for (var k = 0u; k < p.size; k++) {
        let i = start + k * p.inner;
        total += {{ number }}(x[i]);
        y[i] = {{ result }}(total);
    }
}
