{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "packed.wgsl" import scale_of $}
{$ from "tiles.wgsl" import clamped_columns, each_result $}
{$ from "q4/linear_q4_offsets.wgsl" import offset_of with context $}
{# words, tile, columns, aligned: as in linear_q4.wgsl; packed: x is int8, see linear_q4_pack.wgsl; subgroups: sums are
   added up within subgroups of any width first, else over workgroup memory alone; group_loads: loads of a group, a
   constant because a division by a uniform takes many instructions; 0 if a row is one group; decode: see weight_formats/int4.wgsl. #}
{$ set x_type = "vec2<u32>" if packed else "vec4<" ~ type ~ ">" $}
{$ set w_type = "u32" if words == 1 else "vec" ~ words ~ "<u32>" $}
{$ set wide = [columns, 4] | min $}
{$ set s_type = "vec%d<%s>" % (wide, scale_type) if aligned else scale_type $}
{$ set word_quads = 8 // bits $}
{$ set quads = word_quads * words $}
{$ set results = tile * columns $}
{$ set normed = norm_type != "" $}
{$ set row_groups = "p.groups" $}
{$ set unit = "" if packed else "UNIT * " $}
{$ set excess = 24 if decode == "halves" else 0 $}
{$ include "q4/linear_q4_bindings.wgsl" $}

$$ if packed
const ONES = 0x01010101u;
$$ else
{$ include loader $}
$$ endif

{# With a norm, x is multiplied by its weight only, and the results by the factor of their row: the squares of a row are
   added up beside the products. #}
{$ set shared = weights * results + (tile if normed else 0) $}
{$ set parts = [workgroup // 4, 1] | max if subgroups else workgroup $}
var<workgroup> shares: array<f32, {{ shared * parts }}>;

{$ set size = ", lanes_here" if subgroups else "" $}
// A sum over the workgroup.
$$ if subgroups
fn total(j: u32, lanes_here: u32) -> f32 {
    var sum = shares[j * {{ parts }}u];
    for (var part = 1u; part < (wg >> countTrailingZeros(lanes_here)); part++) {
        sum += shares[j * {{ parts }}u + part];
    }
    return sum;
}
$$ else
fn total(j: u32) -> f32 {
    return shares[j * wg];
}
$$ endif

// A workgroup owns {{ tile }} rows by {{ columns }} columns: its invocations read neighbouring loads of a row of the
// weight, and add up their sums in the end. Tails clamp their reads and skip their writes.
$$ call per_workgroup(subgroups=subgroups)
    let column = (workgroup / p.stride) * {{ columns }}u;
    let row = (workgroup % p.stride) * {{ tile }}u;
{{ clamped_columns(columns) }}
$$ for r in range(tile)
$$ if packed
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * (p.row_loads * {{ words }}u + 1u);
    let zero{{ r }} = bitcast<i32>(x[x{{ r }}].y);
$$ else
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * p.row_loads * {{ quads }}u;
$$ endif
$$ endfor
$$ call(v, r, c) each_result(weights, tile, columns)
    var sum{{ v }}_{{ r }}_{{ c }} = 0.0;
$$ endcall
$$ if normed
$$ for r in range(tile)
    var squares{{ r }} = 0.0;
$$ endfor
$$ endif
$$ if offset
$$ for v in range(weights)
$$ for c in range(columns)
    let offset_scale{{ v }}_{{ c }} = offset_scale({{ v }}u, p.first + n{{ c }});
$$ endfor
$$ endfor
$$ endif
    for (var load = local; load < p.row_loads; load += wg) {
{$ set step = "(p.scale_stride / %du)" % wide if aligned else "p.scale_stride" $}
        let s = {{ "load / %du * %s + " % (group_loads, step) if group_loads }}{{ "(p.first + column) / %du" % wide if aligned else "p.first" }};
$$ if offset
        let g = {{ "load / %du" % group_loads if group_loads else "0u" }};
$$ endif
$$ if offset or excess
$$ for r in range(tile)
        var x_sum{{ r }} = 0.0;
$$ endfor
$$ endif
$$ for v in range(weights)
$$ if aligned
$$ for c in range(0, columns, wide)
        let scales{{ v }}_{{ c }}_here = {{ unit }}vec{{ wide }}<f32>(scales{{ v }}[s + {{ c // wide }}u]);
$$ endfor
$$ endif
$$ for c in range(columns)
        let q{{ v }}_{{ c }} = weight{{ v }}[n{{ c }} * p.row_loads + load];
        let scale{{ v }}_{{ c }} = {{ "scales%d_%d_here[%d]" % (v, c - c % wide, c % wide) if aligned else unit ~ scale_of("scales%d" % v, "s + n%d" % c, scale_type) }};
$$ if packed
        var total{{ v }}_{{ c }} = {{ -64 * words }};
$$ endif
$$ for r in range(tile)
        var part{{ v }}_{{ r }}_{{ c }} = {{ "0" if packed else "0.0" }};
$$ endfor
$$ endfor
$$ endfor
$$ for h in range(words if packed else quads)
        {  // A part of x is read when all columns can use it, and not held: there may be many rows.
$$ for v in range(weights)
$$ for c in range(columns)
{$ set word = "q%d_%d" % (v, c) ~ ("" if words == 1 else "." ~ "xyzw"[h if packed else h // word_quads]) $}
$$ if packed
            let even{{ v }}_{{ c }} = {{ word }} & 0x0f0f0f0fu;
            let odd{{ v }}_{{ c }} = ({{ word }} >> 4u) & 0x0f0f0f0fu;
            total{{ v }}_{{ c }} += dot4I8Packed(even{{ v }}_{{ c }} + odd{{ v }}_{{ c }}, ONES);
$$ else
            let b{{ v }}_{{ c }} = {{ "upper_" if h % word_quads }}codes({{ word }});
$$ endif
$$ endfor
$$ endfor
$$ if normed
            let norm_here = vec4<f32>(norm[load * {{ quads }}u + {{ h }}u]);
$$ endif
$$ for r in range(tile)
            {
$$ if packed
                let a = x[x{{ r }} + load * {{ words }}u + {{ h + 1 }}u];
                let excess = 8 * (dot4I8Packed(a.x, ONES) + dot4I8Packed(a.y, ONES));
$$ elif normed
                let row_x = vec4<f32>(x[x{{ r }} + load * {{ quads }}u + {{ h }}u]);
                squares{{ r }} += dot(row_x, row_x);
                let a = row_x * norm_here;
$$ else
                let a = vec4<f32>(x[x{{ r }} + load * {{ quads }}u + {{ h }}u]);
$$ endif
$$ if offset or excess
                x_sum{{ r }} += (a.x + a.y) + (a.z + a.w);
$$ endif
$$ for v in range(weights)
$$ for c in range(columns)
$$ if packed
                part{{ v }}_{{ r }}_{{ c }} += dot4I8Packed(even{{ v }}_{{ c }}, a.x) + dot4I8Packed(odd{{ v }}_{{ c }}, a.y) - excess;
$$ else
                part{{ v }}_{{ r }}_{{ c }} += dot(a, b{{ v }}_{{ c }});
$$ endif
$$ endfor
$$ endfor
            }
$$ endfor
        }
$$ endfor
$$ if offset
$$ for v in range(weights)
$$ for c in range(columns)
{{ offset_of(v, c, wide, "p.first") }}
$$ endfor
$$ endfor
$$ endif
$$ call(v, r, c) each_result(weights, tile, columns)
{$ set cell = "%d_%d_%d" % (v, r, c) $}
{$ set part = "f32(part%s - zero%d * total%d_%d)" % (cell, r, v, c) if packed else "(part%s - %d.0 * x_sum%d)" % (cell, excess, r) if excess else "part" ~ cell $}
        sum{{ cell }} += scale{{ v }}_{{ c }} * {{ part }}{{ " + offset%d_%d * x_sum%d" % (v, c, r) if offset }};
$$ endcall
    }
{$ macro share(j, value) $}
$$ if subgroups
    let share{{ j }} = subgroupAdd({{ value }});
$$ else
    shares[{{ j }}u * wg + local] = {{ value }};
$$ endif
{$ endmacro $}
$$ call(v, r, c) each_result(weights, tile, columns)
{{ share((v * tile + r) * columns + c, "sum%d_%d_%d" % (v, r, c)) }}
$$ endcall
$$ if normed
$$ for r in range(tile)
{{ share(weights * results + r, "squares%d" % r) }}
$$ endfor
$$ endif
$$ if subgroups
    if (lane == 0u) {
        let own_part = local >> countTrailingZeros(lanes_here);  // widths are powers of two
$$ for j in range(shared)
        shares[{{ j * parts }}u + own_part] = share{{ j }};
$$ endfor
    }
    workgroupBarrier();
$$ else
    for (var half = wg / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (local < half) {
$$ for j in range(shared)
            shares[{{ j }}u * wg + local] += shares[{{ j }}u * wg + local + half];
$$ endfor
        }
    }
    workgroupBarrier();
$$ endif
    let r = local / {{ columns }}u;
    let c = local % {{ columns }}u;
    if (local < {{ results }}u && row + r < p.rows && column + c < p.columns) {
$$ if packed
        let factor = bitcast<f32>(x[(row + r) * (p.row_loads * {{ words }}u + 1u)].x);
$$ elif normed
        let factor = inverseSqrt(total({{ weights * results }}u + r{{ size }}) / p.norm_columns + p.norm_eps);
$$ else
        let factor = 1.0;
$$ endif
        put(row + r, p.first + column + c{$ for v in range(weights) $}, factor * total({{ v * results }}u + local{{ size }}){$ endfor $});
    }
$$ endcall
