{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> ranges: array<vec2<f32>>;

// The least and the greatest of every p.runs-th element of a row, and 0.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let row = (i / p.runs) * p.width;
    var range = vec2<f32>();
    for (var k = i % p.runs; k < p.width; k += p.runs) {
        let value = f32(x[row + k]);
        range = vec2<f32>(min(range.x, value), max(range.y, value));
    }
    ranges[i] = range;
}
