@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;  // (N, K)
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // (K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // (N)

var<workgroup> parts: array<f32, {{ rows * 64 }}>;

// A workgroup of 64 owns {{ rows }} rows: coalesced loads, and a tree in shared memory.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.x * {{ rows }}u;
$$ for r in range(rows)
    var sum{{ r }} = 0.0;
$$ endfor
    for (var k = lane; k < {{ K // 4 }}u; k += 64u) {
        let v = x[k];
$$ for r in range(rows)
        sum{{ r }} += dot(w[(row + {{ r }}u) * {{ K // 4 }}u + k], v);
$$ endfor
    }
$$ for r in range(rows)
    parts[{{ r * 64 }}u + lane] = sum{{ r }};
$$ endfor
    for (var width = 32u; width > 0u; width >>= 1u) {
        workgroupBarrier();
        if (lane < width) {
$$ for r in range(rows)
            parts[{{ r * 64 }}u + lane] += parts[{{ r * 64 }}u + lane + width];
$$ endfor
        }
    }
    workgroupBarrier();
    if (lane < {{ rows }}u) {
        y[row + lane] = parts[lane * 64u];
    }
}
