{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "packed.wgsl" import scale_of $}
{$ from "tiles.wgsl" import clamped_columns, each_result, put_results $}
{$ from "q4/linear_q4_offsets.wgsl" import offset_of with context $}
{# words: how many a load has, all of one group; single: a group is one load; tile and columns: what an invocation owns,
   columns of each weight; aligned: scales are read several at once; lanes: how many invocations share what they read of
   x, 0 if each reads all of it. #}
{$ set wide = [columns, 4] | min $}
{$ set x_type = "vec4<" ~ type ~ ">" $}
{$ set w_type = "u32" if words == 1 else "vec" ~ words ~ "<u32>" $}
{$ set s_type = "vec" ~ wide ~ "<" ~ scale_type ~ ">" if aligned else scale_type $}
{$ set word_quads = 8 // bits $}
{$ set quads = word_quads * words $}
{$ set held = [1, lanes // quads] | max if lanes else 1 $}
{$ set row_groups = "p.groups" $}
{$ macro sum_of(v) $}({{ v }}.x + {{ v }}.y) + ({{ v }}.z + {{ v }}.w){$ endmacro $}
{$ include "q4/linear_q4_bindings.wgsl" $}

{$ set units = true $}
{$ include loader $}

// Each invocation owns {{ tile }} rows by {{ columns }} columns; those of a workgroup have the rows in common.
// Tails clamp their reads and skip their writes.
$$ call per_workgroup(lanes)
    let column = ((workgroup % p.stride) * wg + local) * {{ columns }}u;
    let row = (workgroup / p.stride) * {{ tile }}u;
    let groups = p.groups;
    let group_loads = p.group_loads;
    let scale_stride = p.scale_stride;
    let first = p.first;
{{ clamped_columns(columns) }}
$$ for c in range(columns)
    let w{{ c }} = n{{ c }} * p.row_loads;
$$ endfor
$$ if lanes
    let own_quad = lane % {{ [quads, lanes] | min }}u;
$$ for o in range(0, tile, held)
    let x{{ o }} = min(row + {{ o }}u + lane / {{ quads }}u % {{ held }}u, p.rows - 1u) * p.row_loads * {{ quads }}u;
$$ endfor
$$ else
$$ for r in range(tile)
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * p.row_loads * {{ quads }}u;
$$ endfor
$$ endif
$$ call(v, r, c) each_result(weights, tile, columns)
    var sum{{ v }}_{{ r }}_{{ c }} = 0.0;
$$ endcall
$$ if not single
    var load = 0u;  // along K; what else depends on it is not carried from step to step
$$ endif
$$ if offset
$$ for v in range(weights)
$$ for c in range(columns)
    let offset_scale{{ v }}_{{ c }} = offset_scale({{ v }}u, first + n{{ c }});
$$ endfor
$$ endfor
$$ endif
    for (var g = 0u; g < groups; g++) {
$$ if offset
$$ for r in range(tile)
        var x_sum{{ r }} = 0.0;
$$ endfor
$$ endif
        let s = g * scale_stride + first;
$$ call(v, r, c) each_result(weights, tile, columns)
        var part{{ v }}_{{ r }}_{{ c }} = 0.0;
$$ endcall
$$ if single
        {
            let load = g;
$$ else
        for (var k = 0u; k < group_loads; k++) {
$$ endif
$$ if lanes
$$ for o in range(0, tile, held)
$$ for h in range(0, quads, lanes)
            let own_x{{ o }}_{{ h }} = vec4<f32>(x[x{{ o }} + load * {{ quads }}u + {{ h }}u + own_quad]);
            let own{{ o }}_{{ h }} = own_x{{ o }}_{{ h }} * UNITS;
$$ if offset
            let own_sum{{ o }}_{{ h }} = {{ sum_of("own_x%d_%d" % (o, h)) }};
$$ endif
$$ endfor
$$ endfor
$$ for c in range(columns)
$$ for v in range(weights)
            let q{{ v }}_{{ c }} = weight{{ v }}[w{{ c }} + load];
$$ endfor
$$ endfor
$$ for r in range(tile)
$$ for h in range(quads)
            let a{{ r }}_{{ h }} = subgroupBroadcast(own{{ r - r % held }}_{{ h - h % lanes }}, {{ (r % held * quads + h) % lanes }}u);
$$ endfor
$$ endfor
$$ else
$$ for r in range(tile)
$$ for h in range(quads)
            let x{{ r }}_{{ h }} = vec4<f32>(x[x{{ r }} + load * {{ quads }}u + {{ h }}u]);
            let a{{ r }}_{{ h }} = x{{ r }}_{{ h }} * UNITS;
$$ endfor
$$ endfor
$$ for c in range(columns)
$$ for v in range(weights)
            let q{{ v }}_{{ c }} = weight{{ v }}[w{{ c }} + load];
$$ endfor
$$ endfor
$$ endif
$$ if offset
$$ for r in range(tile)
$$ for h in range(quads)
$$ if lanes
            x_sum{{ r }} += subgroupBroadcast(own_sum{{ r - r % held }}_{{ h - h % lanes }}, {{ (r % held * quads + h) % lanes }}u);
$$ else
            x_sum{{ r }} += {{ sum_of("x%d_%d" % (r, h)) }};
$$ endif
$$ endfor
$$ endfor
$$ endif
$$ for c in range(columns)
$$ for v in range(weights)
            {
$$ for h in range(quads)
                let b{{ h }} = codes(q{{ v }}_{{ c }}{{ "" if words == 1 else "." ~ "xyzw"[h // word_quads] }}{{ " >> 16u" if h % word_quads }});
$$ for r in range(tile)
                part{{ v }}_{{ r }}_{{ c }} += dot(a{{ r }}_{{ h }}, b{{ h }});
$$ endfor
$$ endfor
            }
$$ endfor
$$ endfor
$$ if not single
            load++;
$$ endif
        }
$$ for v in range(weights)
$$ for c in range(columns)
$$ if aligned and c % wide == 0
        let scale{{ v }}_{{ c }} = vec{{ wide }}<f32>(scales{{ v }}[(s + n{{ c }}) / {{ wide }}u]);
$$ endif
$$ if aligned
        let factor{{ v }}_{{ c }} = scale{{ v }}_{{ c - c % wide }}[{{ c % wide }}];
$$ else
        let factor{{ v }}_{{ c }} = {{ scale_of("scales%d" % v, "s + n%d" % c, scale_type) }};
$$ endif
$$ if offset
{{ offset_of(v, c, wide, "first") }}
$$ endif
$$ for r in range(tile)
        sum{{ v }}_{{ r }}_{{ c }} += factor{{ v }}_{{ c }} * part{{ v }}_{{ r }}_{{ c }}{{ " + offset%d_%d * x_sum%d" % (v, c, r) if offset }};
$$ endfor
$$ endfor
$$ endfor
    }
$$ call(v, r, c) put_results(tile, columns, "row + r, p.first + column + c", weights)
sum{{ v }}_{{ r }}_{{ c }}
$$ endcall
$$ endcall
