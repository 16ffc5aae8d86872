{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "tiles.wgsl" import clamped_columns, put_results $}
{# Register tiles of `rows` by `columns`. `lanes` invocations of a subgroup share what they read of a, 0 if each reads all
   of it; `tail`: some of K is left to be read by each; `by_rows`: b is (N, K), else (K, N); a_width and b_width: how many
   elements of a and b are read at once. #}
{$ set a_type = type if a_width == 1 else "vec4<" ~ type ~ ">" $}
{$ set b_type = type if b_width == 1 else "vec4<" ~ type ~ ">" $}
{$ set a_wide = "f32" if a_width == 1 else "vec4<f32>" $}
{$ set b_wide = "f32" if b_width == 1 else "vec4<f32>" $}
{# Rows that one load gives to a subgroup, and steps of K; loads that all rows take. #}
{$ set held = [rows, lanes] | min if lanes else 1 $}
{$ set parts = lanes // held if lanes else 1 $}
{$ set loads = (rows + held - 1) // held $}
{$ include "matmul/matmul_put.wgsl" $}

{# Multiply a0, a1, ... by b at step `k` of K. #}
{$ macro accumulate(k) $}
$$ if by_rows
$$ for c in range(columns)
        let b{{ c }} = {{ b_wide }}(b[b_at{{ c }} + {{ k }}]);
$$ for r in range(rows)
        sum{{ r }}_{{ c }} += {{ "a%d * b%d" % (r, c) if a_width == 1 else "dot(a%d, b%d)" % (r, c) }};
$$ endfor
$$ endfor
$$ else
$$ for i in range(a_width)
        let row{{ i }} = b_start + (({{ k }}) * {{ a_width }}u + {{ i }}u) * p.b_row;
$$ for q in range(columns // 4)
$$ if b_width == 4
        let b{{ i }}_{{ q }} = vec4<f32>(b[(row{{ i }} + n{{ 4 * q }}) / 4u]);
$$ else
        let b{{ i }}_{{ q }} = vec4<f32>(
$$ for c in range(4 * q, 4 * q + 4)
            f32(b[row{{ i }} + n{{ c }}]),
$$ endfor
        );
$$ endif
$$ for r in range(rows)
        sum{{ r }}_{{ q }} += a{{ r }}{{ "[%d]" % i if a_width > 1 }} * b{{ i }}_{{ q }};
$$ endfor
$$ endfor
$$ endfor
$$ endif
{$ endmacro $}
// Invocations of a workgroup have their rows in common, neighbours own neighbouring columns. Tails clamp their reads and
// skip their writes.
$$ call per_workgroup(lanes)
    let row = (workgroup % p.row_tiles) * {{ rows }}u;
    let tile = workgroup / p.row_tiles;
    let batch = tile / p.column_groups;
    let column = ((tile % p.column_groups) * wg + local) * {{ columns }}u;
    let steps = p.inner / {{ a_width }}u;
    let a_start = start(batch, p.a_outer, p.a_head) / {{ a_width }}u;
    let a_row = p.a_row / {{ a_width }}u;
    let b_start = start(batch, p.b_outer, p.b_head);
    let y_start = start(batch, p.y_outer, p.y_head);
{{ clamped_columns(columns) }}
$$ if by_rows
$$ for c in range(columns)
    let b_at{{ c }} = (b_start + n{{ c }} * p.b_row) / {{ a_width }}u;
$$ endfor
$$ endif
$$ for r in range(rows)
$$ for c in range(columns if by_rows else columns // 4)
    var sum{{ r }}_{{ c }} = {{ "0.0" if by_rows else "vec4<f32>()" }};
$$ endfor
$$ endfor
    var k = 0u;
$$ if lanes
    let held_step = min(lane % {{ lanes }}u / {{ held }}u, {{ parts - 1 }}u);
$$ for l in range(loads)
    let held{{ l }} = a_start + min(row + {{ l * held }}u + lane % {{ held }}u, p.rows - 1u) * a_row + held_step;
$$ endfor
    for (; k + {{ parts }}u <= steps; k += {{ parts }}u) {
$$ for l in range(loads)
        let own{{ l }} = {{ a_wide }}(a[held{{ l }} + k]);
$$ endfor
$$ if parts > 1
        // The bound is a uniform: the compiler would unroll a literal one, and write the loads out once for each step.
        for (var part = 0u; part < p.parts; part++) {
$$ for r in range(rows)
            let a{{ r }} = subgroupShuffle(own0, part * {{ held }}u + {{ r }}u);
$$ endfor
{{ accumulate("k + part") }}
        }
$$ else
$$ for r in range(rows)
        let a{{ r }} = subgroupBroadcast(own{{ r // held }}, {{ r % held }}u);
$$ endfor
{{ accumulate("k") }}
$$ endif
    }
$$ endif
$$ if tail
$$ for r in range(rows)
    let a_at{{ r }} = a_start + min(row + {{ r }}u, p.rows - 1u) * a_row;
$$ endfor
    for (; k < steps; k++) {
$$ for r in range(rows)
        let a{{ r }} = {{ a_wide }}(a[a_at{{ r }} + k]);
$$ endfor
{{ accumulate("k") }}
    }
$$ endif
$$ call(v, r, c) put_results(rows, columns, "y_start, batch, row + r, column + c")
{{ "sum%d_%d" % (r, c) if by_rows else "sum%d_%d[%d]" % (r, c // 4, c % 4) }}
$$ endcall
$$ endcall
