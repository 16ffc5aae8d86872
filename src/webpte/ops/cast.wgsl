{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ source }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ "u32" if target == "bool" else target }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
$$ if target == "bool"
    y[i] = u32(x[i] != {{ source }}(0));
$$ else
    y[i] = {{ target }}(x[i]);
$$ endif
}
