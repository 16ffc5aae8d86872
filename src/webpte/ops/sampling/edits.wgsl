{$ include "kernel.wgsl" $}

const HIDDEN = 0xff800000u;

var<storage> choices: array<i32>;
var<storage> edited: array<u32>;

// One invocation per edit: (row, token, factor, addend). No two are of the same row and token.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    let at = p.first + 4u * i;
    if (i >= p.threads || i >= u32(live(p.edits))) {
        return;
    }
    let row = u32(choices[at]);
    let token = u32(choices[at + 1u]);
    if (row >= p.rows || token >= p.vocabulary) {
        return;
    }
    let bits = edited[row * p.vocabulary + token];
    if (bits != HIDDEN) {
        let x = bitcast<f32>(bits);
        let factor = bitcast<f32>(choices[at + 2u]);
        let changed = select(x * factor, x / factor, x > 0.0) + bitcast<f32>(choices[at + 3u]);
        edited[row * p.vocabulary + token] = bitcast<u32>(clamp(changed, -3.4e38, 3.4e38));
    }
}
