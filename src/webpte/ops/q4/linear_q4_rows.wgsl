{$ include "kernel.wgsl" $}
{# columns, aligned: as in linear_q4.wgsl; lanes: how many invocations of a subgroup read a row of x each. #}
{$ set tile = 8 $}
{$ set wide = [columns, 4] | min $}
{$ set x_type = "vec4<" ~ type ~ ">" $}
{$ set w_type = "u32" $}
{$ set s_type = "vec" ~ wide ~ "<" ~ scale_type ~ ">" if aligned else scale_type $}
{$ include "q4/linear_q4_bindings.wgsl" $}

{$ include "q4/codes_q4.wgsl" $}

// Each invocation owns {{ tile }} rows by {{ columns }} columns; those of a workgroup have the rows in common, so each
// reads some of them for all. Tails clamp their reads and skip their writes.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let workgroup = id.x + id.y * workgroups.x;
    if (workgroup * wg >= p.threads) {
        return;
    }
    let column = ((workgroup % p.column_groups) * wg + local) * {{ columns }}u;
    let row = (workgroup / p.column_groups) * {{ tile }}u;
    let last = p.columns - 1u;
    let groups = p.groups;
    let group_words = p.group_loads;
    let scale_stride = p.scale_stride;
    let first = p.first;
$$ for c in range(columns)
    let n{{ c }} = min(column + {{ c }}u, last);
    let w{{ c }} = n{{ c }} * p.row_loads;
$$ endfor
$$ for o in range(0, tile, lanes)
    let x{{ o }} = min(row + {{ o }}u + lane % {{ lanes }}u, p.rows - 1u) * p.row_loads * 2u;
$$ endfor
$$ for v in range(weights)
$$ for r in range(tile)
$$ for c in range(columns)
    var sum{{ v }}_{{ r }}_{{ c }} = 0.0;
$$ endfor
$$ endfor
$$ endfor
    var word = 0u;  // along K; what else depends on it is not carried from step to step
    for (var g = 0u; g < groups; g++) {
        let s = g * scale_stride + first;
$$ for v in range(weights)
$$ for c in range(columns)
$$ if aligned and c % wide == 0
        let scale{{ v }}_{{ c }} = vec{{ wide }}<f32>(scales{{ v }}[(s + n{{ c }}) / {{ wide }}u]);
$$ endif
$$ if aligned
        let factor{{ v }}_{{ c }} = scale{{ v }}_{{ c - c % wide }}[{{ c % wide }}];
$$ else
        let factor{{ v }}_{{ c }} = f32(scales{{ v }}[s + n{{ c }}]);
$$ endif
$$ endfor
$$ endfor
        for (var k = 0u; k < group_words; k++) {
$$ for v in range(weights)
$$ for c in range(columns)
            let q{{ v }}_{{ c }} = weight{{ v }}[w{{ c }} + word];
$$ endfor
$$ endfor
$$ for h in range(2)
            {
$$ for v in range(weights)
$$ for c in range(columns)
                let code{{ v }}_{{ c }} = codes(q{{ v }}_{{ c }}{{ " >> 16u" if h }}) * UNITS;
                let b{{ v }}_{{ c }} = (code{{ v }}_{{ c }} - 8.0) * factor{{ v }}_{{ c }};
$$ endfor
$$ endfor
$$ for o in range(0, tile, lanes)
                let own{{ o }} = vec4<f32>(x[x{{ o }} + word * 2u + {{ h }}u]);
$$ endfor
$$ for r in range(tile)
                let a{{ r }} = subgroupBroadcast(own{{ r - r % lanes }}, {{ r % lanes }}u);
$$ for v in range(weights)
$$ for c in range(columns)
                sum{{ v }}_{{ r }}_{{ c }} += dot(a{{ r }}, b{{ v }}_{{ c }});
$$ endfor
$$ endfor
$$ endfor
            }
$$ endfor
            word++;
        }
    }
{$ include "q4/linear_q4_results.wgsl" $}
}
