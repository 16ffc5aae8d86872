{$ include "kernel.wgsl" $}
{# words: how many a load has, all of one group; single: a group is one load; aligned: scales are read by fours. #}
{$ set load = "u32" if words == 1 else "vec" ~ words ~ "<u32>" $}
{$ set scale = "vec4<" ~ scale_type ~ ">" if aligned else scale_type $}
{$ set first_output = 4 if biased else 3 $}

@group(1) @binding(0) var<storage, read> x: array<vec4<{{ type }}>>;  // (M, K)
@group(1) @binding(1) var<storage, read> w: array<{{ load }}>;  // (N, K / 2) bytes, a code in each half
@group(1) @binding(2) var<storage, read> scales: array<{{ scale }}>;  // (K / group, at least N)
$$ if biased
@group(1) @binding(3) var<storage, read> bias: array<{{ bias_type }}>;
$$ endif
@group(1) @binding({{ first_output }}) var<storage, read_write> y: array<{{ out_type }}>;  // (M, N)

{$ include "codes_q4.wgsl" $}

// Each invocation owns {{ tile }} rows by {{ columns }} columns; tails clamp their reads and skip their writes.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let column = (i % p.column_tiles) * {{ columns }}u;
    let row = (i / p.column_tiles) * {{ tile }}u;
$$ for c in range(columns)
    let n{{ c }} = min(column + {{ c }}u, p.columns - 1u);
    var w{{ c }} = n{{ c }} * p.row_loads;
$$ endfor
$$ for r in range(tile)
    var x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * p.row_loads * {{ 2 * words }}u;
$$ for c in range(columns)
    var sum{{ r }}{{ c }} = 0.0;
$$ endfor
$$ endfor
    for (var g = 0u; g < p.groups; g++) {
$$ for r in range(tile)
        var x_total{{ r }} = vec4<f32>();
$$ for c in range(columns)
        var part{{ r }}{{ c }} = 0.0;
$$ endfor
$$ endfor
$$ if single
        {
$$ else
        for (var k = 0u; k < p.group_loads; k++) {
$$ endif
$$ for r in range(tile)
$$ for h in range(2 * words)
            let x{{ r }}_{{ h }} = vec4<f32>(x[x{{ r }} + {{ h }}u]);
            x_total{{ r }} += x{{ r }}_{{ h }};
            let a{{ r }}_{{ h }} = x{{ r }}_{{ h }} * UNITS;
$$ endfor
            x{{ r }} += {{ 2 * words }}u;
$$ endfor
$$ for c in range(columns)
            let q{{ c }} = w[w{{ c }}];
            w{{ c }}++;
$$ for h in range(2 * words)
{$ set word = "q" ~ c if words == 1 else "q" ~ c ~ "." ~ "xyzw"[h // 2] $}
            let b{{ c }}_{{ h }} = codes({{ word }}{{ " >> 16u" if h % 2 }});
$$ for r in range(tile)
            part{{ r }}{{ c }} += dot(a{{ r }}_{{ h }}, b{{ c }}_{{ h }});
$$ endfor
$$ endfor
$$ endfor
        }
        // A weight is its code less 8: that is taken off once per group, and the scale applied.
$$ for r in range(tile)
        let excess{{ r }} = 8.0 * (x_total{{ r }}.x + x_total{{ r }}.y + x_total{{ r }}.z + x_total{{ r }}.w);
$$ endfor
$$ if aligned
        let s = (g * p.scale_stride + p.first + column) / 4u;
$$ for v in range(columns // 4)
        let scale_{{ v }} = vec4<f32>(scales[s + {{ v }}u]);
$$ endfor
$$ else
        let s = g * p.scale_stride + p.first;
$$ endif
$$ for c in range(columns)
$$ if aligned
        let scale{{ c }} = scale_{{ c // 4 }}[{{ c % 4 }}];
$$ else
        let scale{{ c }} = f32(scales[s + n{{ c }}]);
$$ endif
$$ for r in range(tile)
        sum{{ r }}{{ c }} += scale{{ c }} * (part{{ r }}{{ c }} - excess{{ r }});
$$ endfor
$$ endfor
    }
$$ for r in range(tile)
    if (row + {{ r }}u < p.rows) {
        let start = (row + {{ r }}u) * p.out_columns + p.first;
$$ for c in range(columns)
        if (column + {{ c }}u < p.columns) {
$$ if biased
            sum{{ r }}{{ c }} += f32(bias[p.first + n{{ c }}]);
$$ endif
            y[start + n{{ c }}] = {{ out_type }}(sum{{ r }}{{ c }});
        }
$$ endfor
    }
$$ endfor
}
