{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{# For few rows: a workgroup owns `rows` by `columns`, its invocations lie along K and read neighbouring elements of b, which
   is (N, K). #}
{$ set a_type = type if a_width == 1 else "vec4<" ~ type ~ ">" $}
{$ set b_type = a_type $}
{$ set wide = "f32" if a_width == 1 else "vec4<f32>" $}
{$ include "matmul/matmul_put.wgsl" $}

var<workgroup> partial: array<f32, {{ rows * columns * workgroup }}>;

$$ call per_workgroup()
    let tile = workgroup / p.column_groups;
    let row = (tile % p.row_tiles) * {{ rows }}u;
    let batch = tile / p.row_tiles;
    let column = (workgroup % p.column_groups) * {{ columns }}u;
    let steps = p.inner / {{ a_width }}u;
    let a_start = start(batch, p.a_outer, p.a_head);
    let b_start = start(batch, p.b_outer, p.b_head);
    let y_start = start(batch, p.y_outer, p.y_head);
$$ for r in range(rows)
    let a_at{{ r }} = (a_start + min(row + {{ r }}u, p.rows - 1u) * p.a_row) / {{ a_width }}u;
    var sum{{ r }} = vec{{ columns }}<f32>();
$$ endfor
$$ for c in range(columns)
    let b_at{{ c }} = (b_start + min(column + {{ c }}u, p.columns - 1u) * p.b_row) / {{ a_width }}u;
$$ endfor
    for (var k = local; k < steps; k += wg) {
$$ for c in range(columns)
        let b{{ c }} = {{ wide }}(b[b_at{{ c }} + k]);
$$ endfor
$$ for r in range(rows)
        let a{{ r }} = {{ wide }}(a[a_at{{ r }} + k]);
$$ for i in range(a_width)
{$ set at = "[%d]" % i if a_width > 1 else "" $}
        sum{{ r }} += a{{ r }}{{ at }} * vec{{ columns }}<f32>({$ for c in range(columns) $}b{{ c }}{{ at }}{{ ", " if not loop.last }}{$ endfor $});
$$ endfor
$$ endfor
    }
$$ for r in range(rows)
$$ for c in range(columns)
    partial[{{ (r * columns + c) * workgroup }}u + local] = sum{{ r }}[{{ c }}];
$$ endfor
$$ endfor
    workgroupBarrier();
    // An invocation adds up for one result.
    if (local < p.tile_rows * p.tile_columns) {
        var total = 0.0;
        for (var i = 0u; i < wg; i++) {
            total += partial[local * wg + i];
        }
        let r = row + local / {{ columns }}u;
        let n = column + local % {{ columns }}u;
        if (r < p.rows && n < p.columns) {
            put(y_start, batch, r, n, total);
        }
    }
$$ endcall
