{$ include "kernel.wgsl" $}
{$ set scalar = "f16" if type == "f16" else "f32" $}
{$ set element = scalar if width == 1 else "vec4<" ~ scalar ~ ">" $}
{$ set wide = "f32" if width == 1 else "vec4<f32>" $}

@group(1) @binding(0) var<storage, read> x: array<{{ element }}>;
@group(1) @binding(1) var<storage, read> w: array<{{ element }}>;
$$ if biased
@group(1) @binding(2) var<storage, read> bias: array<{{ scalar }}>;
@group(1) @binding(3) var<storage, read_write> y: array<{{ scalar }}>;
$$ else
@group(1) @binding(2) var<storage, read_write> y: array<{{ scalar }}>;
$$ endif

fn total(v: {{ wide }}) -> f32 {
$$ if width == 1
    return v;
$$ else
    return v.x + v.y + v.z + v.w;
$$ endif
}

// Each invocation owns {{ tile }} rows by 4 columns; tails clamp their reads and skip their writes.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let row = (i / p.column_tiles) * {{ tile }}u;
    let column = (i % p.column_tiles) * 4u;
    let steps = p.inner / {{ width }}u;
$$ for c in range(4)
    let w{{ c }} = min(column + {{ c }}u, p.columns - 1u) * steps;
$$ endfor
$$ for r in range(tile)
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * steps;
$$ for c in range(4)
    var sum{{ r }}{{ c }} = {{ wide }}();
$$ endfor
$$ endfor
    for (var k = 0u; k < steps; k++) {
$$ for c in range(4)
        let b{{ c }} = {{ wide }}(w[w{{ c }} + k]);
$$ endfor
$$ for r in range(tile)
        let a{{ r }} = {{ wide }}(x[x{{ r }} + k]);
$$ for c in range(4)
        sum{{ r }}{{ c }} += a{{ r }} * b{{ c }};
$$ endfor
$$ endfor
    }
$$ for r in range(tile)
    if (row + {{ r }}u < p.rows) {
$$ for c in range(4)
        if (column + {{ c }}u < p.columns) {
            var value = total(sum{{ r }}{{ c }});
$$ if biased
            value += f32(bias[column + {{ c }}u]);
$$ endif
$$ if clamped
            value = min(max(value, p.lowest), p.highest);
$$ endif
            y[(row + {{ r }}u) * p.columns + column + {{ c }}u] = {{ scalar }}(value);
        }
$$ endfor
    }
$$ endfor
}
