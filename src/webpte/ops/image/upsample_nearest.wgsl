{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let row = i / p.out_width;  // over all images
    let at_x = u32(floor(f32(i % p.out_width) * p.scale_x));
    let at_y = u32(floor(f32(row % p.out_height) * p.scale_y));
    let image = row / p.out_height;
    y[i] = x[(image * p.height + min(at_y, p.height - 1u)) * p.width + min(at_x, p.width - 1u)];
}
