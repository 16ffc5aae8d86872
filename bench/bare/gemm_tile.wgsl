@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;  // (N, K)
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // (M, K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // (M, N)

// Each invocation owns {{ rows }} rows by {{ columns }} columns in registers.
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x * {{ columns }}u;
    let row = id.y * {{ rows }}u;
$$ for r in range(rows)
$$ for c in range(columns)
    var sum{{ r }}_{{ c }} = vec4<f32>();
$$ endfor
$$ endfor
    for (var k = 0u; k < {{ K // 4 }}u; k++) {
$$ for c in range(columns)
        let b{{ c }} = w[(column + {{ c }}u) * {{ K // 4 }}u + k];
$$ endfor
$$ for r in range(rows)
        let a{{ r }} = x[(row + {{ r }}u) * {{ K // 4 }}u + k];
$$ for c in range(columns)
        sum{{ r }}_{{ c }} += a{{ r }} * b{{ c }};
$$ endfor
$$ endfor
    }
$$ for r in range(rows)
$$ for c in range(columns)
    y[(row + {{ r }}u) * {{ N }}u + column + {{ c }}u] = dot(sum{{ r }}_{{ c }}, vec4<f32>(1.0));
$$ endfor
$$ endfor
}
