@group(0) @binding(0) var<storage, read> w: array<u32>;  // (N, K / 8): eight codes each
@group(0) @binding(1) var<storage, read> scales: array<vec4<f32>>;  // (K / 32, N)
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;  // (M, K)
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // (M, N)

{$ include "codes.wgsl" $}

// Each invocation owns {{ rows }} rows by {{ columns }} columns; raw codes are summed up, and scaled once per group.
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x * {{ columns }}u;
    let row = id.y * {{ rows }}u;
$$ for r in range(rows)
$$ for v in range(columns // 4)
    var sum{{ r }}_{{ v }} = vec4<f32>();
$$ endfor
$$ endfor
    for (var g = 0u; g < {{ K // 32 }}u; g++) {
$$ for r in range(rows)
        var total{{ r }} = vec4<f32>();
$$ for v in range(columns // 4)
        var part{{ r }}_{{ v }} = vec4<f32>();
$$ endfor
$$ endfor
        for (var j = g * 4u; j < g * 4u + 4u; j++) {
$$ for c in range(columns)
            let q{{ c }} = w[(column + {{ c }}u) * {{ K // 8 }}u + j];
$$ endfor
$$ for half in range(2)
$$ for c in range(columns)
            let b{{ half }}_{{ c }} = codes(q{{ c }}{{ " >> 16u" if half }});
$$ endfor
$$ for r in range(rows)
            let raw{{ half }}_{{ r }} = x[(row + {{ r }}u) * {{ K // 4 }}u + j * 2u + {{ half }}u];
            total{{ r }} += raw{{ half }}_{{ r }};
            let a{{ half }}_{{ r }} = raw{{ half }}_{{ r }} * UNITS;
$$ for v in range(columns // 4)
            part{{ r }}_{{ v }} += vec4<f32>(
$$ for i in range(4)
                dot(a{{ half }}_{{ r }}, b{{ half }}_{{ 4 * v + i }}){{ "," if i < 3 }}
$$ endfor
            );
$$ endfor
$$ endfor
$$ endfor
        }
$$ for r in range(rows)
        let excess{{ r }} = 8.0 * dot(total{{ r }}, vec4<f32>(1.0));
$$ for v in range(columns // 4)
        sum{{ r }}_{{ v }} += scales[g * {{ N // 4 }}u + column / 4u + {{ v }}u] * (part{{ r }}_{{ v }} - excess{{ r }});
$$ endfor
$$ endfor
    }
$$ for r in range(rows)
$$ for v in range(columns // 4)
    y[(row + {{ r }}u) * {{ N // 4 }}u + column / 4u + {{ v }}u] = sum{{ r }}_{{ v }};
$$ endfor
$$ endfor
}
