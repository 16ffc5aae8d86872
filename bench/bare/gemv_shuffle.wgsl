@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;  // (N, K)
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // (K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // (N)

// Each invocation owns {{ rows }} rows; a subgroup of 8 loads 32 numbers of x together and hands them round.
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
    let eight = min(8u, arrayLength(&x));  // not known to the compiler: it would unroll the inner loop
    let row = id.x * {{ rows }}u;
$$ for r in range(rows)
    let w{{ r }} = (row + {{ r }}u) * {{ K // 4 }}u;
    var sum{{ r }} = vec4<f32>();
$$ endfor
    for (var k = 0u; k < {{ K // 4 }}u; k += 8u) {
        let mine = x[k + lane];
        for (var j = 0u; j < eight; j++) {
            let v = subgroupShuffle(mine, j);
$$ for r in range(rows)
            sum{{ r }} += w[w{{ r }} + k + j] * v;
$$ endfor
        }
    }
$$ for r in range(rows)
    y[row + {{ r }}u] = dot(sum{{ r }}, vec4<f32>(1.0));
$$ endfor
}
