@group(0) @binding(0) var<storage, read> w: array<u32>;  // (N, K / 8): eight codes each
@group(0) @binding(1) var<storage, read> scales: array<f32>;  // (K / 32, N)
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;  // (M, K)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;  // (M, N)

{$ include "codes.wgsl" $}

// A subgroup of 8 owns {{ rows }} rows: each lane loads a row of x for all, and keeps {{ columns }} columns of its own.
// {{ "Weights are scaled before they are used." if scaled else "Raw codes are summed up, and scaled once per group." }}
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
    let column = group.x * {{ 8 * columns }}u + lane;
    let row = group.y * {{ rows }}u;
$$ for r in range(rows)
$$ for c in range(columns)
    var sum{{ r }}_{{ c }} = 0.0;
$$ endfor
$$ endfor
    for (var g = 0u; g < {{ K // 32 }}u; g++) {
$$ for c in range(columns)
        let scale{{ c }} = scales[g * {{ N }}u + column + {{ c * 8 }}u];
$$ endfor
$$ if not scaled
$$ for r in range(rows)
$$ for c in range(columns)
        var part{{ r }}_{{ c }} = 0.0;
$$ endfor
$$ endfor
$$ for v in range(rows // 8)
        var total{{ v }} = vec4<f32>();
$$ endfor
$$ endif
        for (var j = g * 4u; j < g * 4u + 4u; j++) {
$$ for c in range(columns)
            let q{{ c }} = w[(column + {{ c * 8 }}u) * {{ K // 8 }}u + j];
$$ endfor
$$ for half in range(2)
            {
$$ for c in range(columns)
                let code{{ c }} = codes(q{{ c }}{{ " >> 16u" if half }});
$$ if scaled
                let b{{ c }} = (code{{ c }} * UNITS - 8.0) * scale{{ c }};
$$ endif
$$ endfor
$$ for v in range(rows // 8)
                let x{{ v }} = x[(row + {{ v * 8 }}u + lane) * {{ K // 4 }}u + j * 2u + {{ half }}u];
$$ if not scaled
                total{{ v }} += x{{ v }};
                let u{{ v }} = x{{ v }} * UNITS;
$$ endif
$$ endfor
$$ for r in range(rows)
                let a{{ r }} = subgroupBroadcast({{ "x" if scaled else "u" }}{{ r // 8 }}, {{ r % 8 }}u);
$$ for c in range(columns)
$$ if scaled
                sum{{ r }}_{{ c }} += dot(a{{ r }}, b{{ c }});
$$ else
                part{{ r }}_{{ c }} += dot(a{{ r }}, code{{ c }});
$$ endif
$$ endfor
$$ endfor
            }
$$ endfor
        }
$$ if not scaled
$$ for v in range(rows // 8)
        let excess{{ v }} = 8.0 * dot(total{{ v }}, vec4<f32>(1.0));
$$ endfor
$$ for r in range(rows)
        let e{{ r }} = subgroupBroadcast(excess{{ r // 8 }}, {{ r % 8 }}u);
$$ for c in range(columns)
        sum{{ r }}_{{ c }} += scale{{ c }} * (part{{ r }}_{{ c }} - e{{ r }});
$$ endfor
$$ endfor
$$ endif
    }
$$ for r in range(rows)
$$ for c in range(columns)
    y[(row + {{ r }}u) * {{ N }}u + column + {{ c * 8 }}u] = sum{{ r }}_{{ c }};
$$ endfor
$$ endfor
}
