@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;  // (N, K)
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // (K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // (N)

// A subgroup of 8 owns {{ rows }} rows: its lanes lie along K, and add up at the end.
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
    let row = group.x * {{ rows }}u;
$$ for r in range(rows)
    let w{{ r }} = (row + {{ r }}u) * {{ K // 4 }}u;
    var sum{{ r }} = {{ "0.0" if dots else "vec4<f32>()" }};
$$ endfor
    for (var k = lane; k < {{ K // 4 }}u; k += 8u) {
        let v = x[k];
$$ for r in range(rows)
        sum{{ r }} += {{ "dot(w[w%d + k], v)" % r if dots else "w[w%d + k] * v" % r }};
$$ endfor
    }
$$ for r in range(rows)
    let total{{ r }} = subgroupAdd({{ "sum%d" % r if dots else "dot(sum%d, vec4<f32>(1.0))" % r }});
    if (lane == 0u) {
        y[row + {{ r }}u] = total{{ r }};
    }
$$ endfor
}
