@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;  // (N, K)
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // (M, K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // (M, N)

// A subgroup of 8 owns {{ rows }} rows: each lane loads a row of x for all, and keeps {{ columns }} columns of its own.
@compute @workgroup_size({{ workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32,
        @builtin(subgroup_invocation_id) lane: u32) {
    let column = group.x * {{ workgroup * columns }}u + index;
    let row = group.y * {{ rows }}u;
$$ for c in range(columns)
    let w{{ c }} = (column + {{ c * workgroup }}u) * {{ K // 4 }}u;
$$ for r in range(rows)
    var sum{{ r }}_{{ c }} = 0.0;
$$ endfor
$$ endfor
    for (var k = 0u; k < {{ K // 4 }}u; k++) {
$$ for half in range(rows // 8)
        let x{{ half }} = x[(row + {{ half * 8 }}u + lane) * {{ K // 4 }}u + k];
$$ endfor
$$ for c in range(columns)
        let b{{ c }} = w[w{{ c }} + k];
$$ endfor
$$ for r in range(rows)
        let a{{ r }} = subgroupBroadcast(x{{ r // 8 }}, {{ r % 8 }}u);
$$ for part in "xyzw"
$$ for c in range(columns)
        sum{{ r }}_{{ c }} += a{{ r }}.{{ part }} * b{{ c }}.{{ part }};
$$ endfor
$$ endfor
$$ endfor
    }
$$ for r in range(rows)
$$ for c in range(columns)
    y[(row + {{ r }}u) * {{ N }}u + column + {{ c * workgroup }}u] = sum{{ r }}_{{ c }};
$$ endfor
$$ endfor
}
