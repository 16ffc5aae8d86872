{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read_write> y: array<{{ type }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
$$ if type in ("i32", "u32")
    y[i] = {{ type }}(p.value_int);
$$ else
    y[i] = {{ type }}(p.value);
$$ endif
}
