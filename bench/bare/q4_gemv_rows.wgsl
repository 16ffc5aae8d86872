@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;  // (N, K / 32): a group of 32 codes each
@group(0) @binding(1) var<storage, read> scales: array<f32>;  // (K / 32, N)
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;  // (K)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;  // (N)

{$ include "codes.wgsl" $}

// Each invocation owns {{ rows }} whole rows.
@compute @workgroup_size({{ workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x * {{ rows }}u;
$$ for r in range(rows)
    var sum{{ r }} = 0.0;
$$ endfor
    for (var g = 0u; g < {{ K // 32 }}u; g++) {
        var total = vec4<f32>();
$$ for j in range(8)
        let raw{{ j }} = x[g * 8u + {{ j }}u];
        total += raw{{ j }};
        let x{{ j }} = raw{{ j }} * UNITS;
$$ endfor
        let excess = 8.0 * dot(total, vec4<f32>(1.0));
$$ for r in range(rows)
        let q{{ r }} = w[(row + {{ r }}u) * {{ K // 32 }}u + g];
        var part{{ r }} = vec4<f32>();
$$ for j in range(8)
        part{{ r }} += codes(q{{ r }}.{{ "xyzw"[j // 2] }}{{ " >> 16u" if j % 2 }}) * x{{ j }};
$$ endfor
        sum{{ r }} += scales[g * {{ N }}u + row + {{ r }}u] * (dot(part{{ r }}, vec4<f32>(1.0)) - excess);
$$ endfor
    }
$$ for r in range(rows)
    y[row + {{ r }}u] = sum{{ r }};
$$ endfor
}
