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

// Each invocation owns {{ tile }} rows by 4 columns; tails clamp their reads and skip their writes.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let column = (i % p.column_tiles) * 4u;
    let row = (i / p.column_tiles) * {{ tile }}u;
    let steps = p.inner / {{ width }}u;
$$ for c in range(4)
    let n{{ c }} = min(column + {{ c }}u, p.columns - 1u);
$$ endfor
$$ for r in range(tile)
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * steps;
$$ for c in range(4)
    var sum{{ r }}{{ c }} = {{ wide }}();
$$ endfor
$$ endfor
    for (var k = 0u; k < steps; k++) {
$$ for r in range(tile)
        let a{{ r }} = {{ wide }}(x[x{{ r }} + k]);
$$ endfor
$$ for c in range(4)
        let b{{ c }} = weight(n{{ c }} * steps + k);
$$ for r in range(tile)
        sum{{ r }}{{ c }} += a{{ r }} * b{{ c }};
$$ endfor
$$ endfor
    }
$$ for c in range(4)
    if (column + {{ c }}u < p.columns) {
        let scale = f32(scales[p.first + n{{ c }}]);
$$ for r in range(tile)
        if (row + {{ r }}u < p.rows) {
            let total = {{ "dot(sum" ~ r ~ c ~ ", vec4<f32>(1.0))" if width == 4 else "sum" ~ r ~ c }};
            y[(row + {{ r }}u) * p.out_columns + p.first + n{{ c }}] = {{ out_type }}(total * scale);
        }
$$ endfor
    }
$$ endfor
}
