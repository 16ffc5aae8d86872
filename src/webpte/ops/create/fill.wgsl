{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read_write> y: array<{{ word }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
$$ if word == "f16"
    y[i] = f16(bitcast<f32>(live(p.value)));
$$ else
    y[i] = bitcast<u32>(live(p.value));
$$ endif
}
