override wg: u32 = {{ workgroup }}u;

{{ params }}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> sym: array<vec4<i32>, {{ sym_slots }}>;

// A literal (slot -1) or the current value of a live scalar. To FXC, the compiler of Direct3D 12 that wgpu selects, the
// condition of an early return would differ between invocations: it would reject barriers that depend on the result.
fn live(v: vec2<i32>) -> i32 {
    var value = v.x;
    if (v.y >= 0) {
        value = sym[v.y].x;
    }
    return value;
}

// Grids wider than the device allows are folded into rows; this undoes the fold.
fn thread_index(id: vec3<u32>, groups: vec3<u32>) -> u32 {
    return id.x + id.y * groups.x * wg;
}
