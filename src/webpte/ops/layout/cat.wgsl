{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    y[(i / p.width) * p.out_width + p.offset + i % p.width] = x[i];
}
