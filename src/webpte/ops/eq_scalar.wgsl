{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
$$ if how == "never"
    y[i] = 0u;
$$ elif how == "bits"
    y[i] = u32(bitcast<u32>(f32(x[i])) == p.other_bits);
$$ elif type in ("f32", "f16")
    y[i] = u32(f32(x[i]) == p.other);
$$ else
    y[i] = u32(x[i] == {{ type }}(p.other_int));
$$ endif
}
