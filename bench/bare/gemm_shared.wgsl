@group(0) @binding(0) var<storage, read> w: array<f32>;  // (N, K)
@group(0) @binding(1) var<storage, read> x: array<f32>;  // (M, K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // (M, N)

var<workgroup> a: array<f32, 512>;  // 32 rows, 16 steps of K
var<workgroup> b: array<f32, 512>;

// A workgroup of 8 by 8 owns 32 rows by 32 columns: tiles of both operands go through shared memory.
@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) id: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {
    let row = group.y * 32u;
    let column = group.x * 32u;
    var sum: array<vec4<f32>, 4>;
    for (var k = 0u; k < {{ K }}u; k += 16u) {
        for (var i = index; i < 512u; i += 64u) {
            a[i] = x[(row + i / 16u) * {{ K }}u + k + i % 16u];
            b[i] = w[(column + i / 16u) * {{ K }}u + k + i % 16u];
        }
        workgroupBarrier();
        for (var j = 0u; j < 16u; j++) {
            let right = vec4<f32>(b[id.x * 64u + j], b[id.x * 64u + 16u + j],
                                  b[id.x * 64u + 32u + j], b[id.x * 64u + 48u + j]);
            sum[0] += a[id.y * 64u + j] * right;
            sum[1] += a[id.y * 64u + 16u + j] * right;
            sum[2] += a[id.y * 64u + 32u + j] * right;
            sum[3] += a[id.y * 64u + 48u + j] * right;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        let at = (row + id.y * 4u + r) * {{ N }}u + column + id.x * 4u;
        y[at] = sum[r].x;
        y[at + 1u] = sum[r].y;
        y[at + 2u] = sum[r].z;
        y[at + 3u] = sum[r].w;
    }
}
