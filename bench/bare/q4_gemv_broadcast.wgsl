{$ set wide = rows % 4 == 0 $}
@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;  // (N, K / 32): a group of 32 codes each
@group(0) @binding(1) var<storage, read> scales: array<{{ "vec4<f32>" if wide else "f32" }}>;  // (K / 32, N)
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;  // (K)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;  // (N)

{$ include "codes.wgsl" $}

// Each invocation owns {{ rows }} rows; a subgroup of 8 loads a group of x together and hands it round.
@compute @workgroup_size({{ workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
    let row = id.x * {{ rows }}u;
$$ for r in range(rows)
    var sum{{ r }} = 0.0;
$$ endfor
    for (var g = 0u; g < {{ K // 32 }}u; g++) {
        let raw = x[g * 8u + lane];
        let excess = 8.0 * subgroupAdd(raw.x + raw.y + raw.z + raw.w);
        let mine = raw * UNITS;
$$ for r in range(rows)
        let q{{ r }} = w[(row + {{ r }}u) * {{ K // 32 }}u + g];
        var part{{ r }} = vec4<f32>();
$$ endfor
$$ for j in range(8)
        let x{{ j }} = subgroupBroadcast(mine, {{ j }}u);
$$ for r in range(rows)
        part{{ r }} += codes(q{{ r }}.{{ "xyzw"[j // 2] }}{{ " >> 16u" if j % 2 }}) * x{{ j }};
$$ endfor
$$ endfor
$$ if wide
$$ for v in range(rows // 4)
        let scale{{ v }} = scales[g * {{ N // 4 }}u + row / 4u + {{ v }}u];
$$ endfor
$$ endif
$$ for r in range(rows)
$$ if wide
        sum{{ r }} += scale{{ r // 4 }}.{{ "xyzw"[r % 4] }} * (dot(part{{ r }}, vec4<f32>(1.0)) - excess);
$$ else
        sum{{ r }} += scales[g * {{ N }}u + row + {{ r }}u] * (dot(part{{ r }}, vec4<f32>(1.0)) - excess);
$$ endif
$$ endfor
    }
$$ for r in range(rows)
    y[row + {{ r }}u] = sum{{ r }};
$$ endfor
}
