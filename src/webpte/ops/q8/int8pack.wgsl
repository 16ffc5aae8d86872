{$ include "kernel.wgsl" $}
{$ include "bytes.wgsl" $}
{$ from "packed.wgsl" import fetched $}
{$ set wide = "f32" if width == 1 else "vec4<f32>" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type if width == 1 else "vec4<" ~ type ~ ">" }}>;  // (M, K)
@group(1) @binding(1) var<storage, read> w: array<u32>;  // (N, K) bytes
@group(1) @binding(2) var<storage, read> scales: array<{{ scale_type }}>;  // (N,)
@group(1) @binding(3) var<storage, read_write> y: array<{{ out_type }}>;  // (M, N)

fn weight(at: u32) -> {{ wide }} {
$$ if width == 1
    return {{ fetched("w", "at", "i8") }};
$$ else
    return vec4<f32>(signed_bytes(w[at]));
$$ endif
}

// Each invocation owns {{ tile }} rows by 4 columns; those of a workgroup have the rows in common, and if there are `lanes`
// each reads some of them for all. Tails clamp their reads and skip their writes.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
$$ if lanes
    @builtin(subgroup_invocation_id) lane: u32,
$$ endif
) {
    let workgroup = id.x + id.y * workgroups.x;
    if (workgroup * wg >= p.threads) {
        return;
    }
    let column = ((workgroup % p.column_groups) * wg + local) * 4u;
    let row = (workgroup / p.column_groups) * {{ tile }}u;
    let steps = p.inner / {{ width }}u;
$$ for c in range(4)
    let n{{ c }} = min(column + {{ c }}u, p.columns - 1u);
$$ endfor
$$ for o in range(0, tile, lanes or 1)
    let x{{ o }} = min(row + {{ o }}u{{ " + lane %% %du" % lanes if lanes }}, p.rows - 1u) * steps;
$$ endfor
$$ for r in range(tile)
$$ for c in range(4)
    var sum{{ r }}_{{ c }} = {{ wide }}();
$$ endfor
$$ endfor
    for (var k = 0u; k < steps; k++) {
$$ for c in range(4)
        let b{{ c }} = weight(n{{ c }} * steps + k);
$$ endfor
$$ for o in range(0, tile, lanes or 1)
        let own{{ o }} = {{ wide }}(x[x{{ o }} + k]);
$$ endfor
$$ for r in range(tile)
        let a{{ r }} = {{ "subgroupBroadcast(own%d, %du)" % (r - r % lanes, r % lanes) if lanes else "own%d" % r }};
$$ endfor
$$ for c in range(4)
$$ for r in range(tile)
        sum{{ r }}_{{ c }} += a{{ r }} * b{{ c }};
$$ endfor
$$ endfor
    }
$$ for c in range(4)
    if (column + {{ c }}u < p.columns) {
        let scale = f32(scales[p.first + n{{ c }}]);
$$ for r in range(tile)
        if (row + {{ r }}u < p.rows) {
            let total = {{ "dot(sum%d_%d, vec4<f32>(1.0))" % (r, c) if width == 4 else "sum%d_%d" % (r, c) }};
            y[(row + {{ r }}u) * p.out_columns + p.first + n{{ c }}] = {{ out_type }}(total * scale);
        }
$$ endfor
    }
$$ endfor
}
