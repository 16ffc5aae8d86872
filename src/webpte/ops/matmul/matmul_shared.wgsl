{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "tiles.wgsl" import add_quads, quad_sums, quad_tile $}
{# For many rows: a workgroup owns `size` by `size` results, and an invocation `own` by `own` of them, 4 or 8. quads: vectors
   along K in workgroup memory. a_width: how many elements of a are read at once, and of b if that is (N, K). #}
{$ set a_type = type if a_width == 1 else "vec4<" ~ type ~ ">" $}
{$ set b_type = a_type if by_rows else type $}
{$ set side = size // own $}
{$ set depth = 4 * quads $}
{$ set swizzle = 8 // quads $}
{$ include "matmul/matmul_put.wgsl" $}

{{ quad_tile("a_tile", size, quads, own) }}
{{ quad_tile("b_tile", size, quads, own) }}

{# Elements k to k + 3 of a row of a, or of b, which begins at `start`; 0 outside. #}
{$ macro row_quad(array, start) $}
$$ if a_width == 4
                value = vec4<f32>({{ array }}[({{ start }} + k) / 4u]);
$$ else
$$ for i in range(4)
                value[{{ i }}] = select(0.0, f32({{ array }}[{{ start }} + min(k + {{ i }}u, p.inner - 1u)]), k + {{ i }}u < p.inner);
$$ endfor
$$ endif
{$ endmacro $}
// A workgroup goes along K in steps of {{ depth }} that all of it has read together, neighbours next to each other in memory. An
// invocation owns rows and columns that lie apart. What lies outside counts as 0.
$$ call per_workgroup()
    let tile = workgroup / p.column_groups;
    let row = (tile % p.row_tiles) * {{ size }}u;
    let batch = tile / p.row_tiles;
    let column = (workgroup % p.column_groups) * {{ size }}u;
    let below = local / {{ side }}u;
    let right = local % {{ side }}u;
    let a_start = start(batch, p.a_outer, p.a_head);
    let b_start = start(batch, p.b_outer, p.b_head);
    let y_start = start(batch, p.y_outer, p.y_head);
{{ quad_sums(own, own) }}
    let steps = p.depth;  // a literal would be unrolled, for which some devices have too few registers
    for (var chunk = 0u; chunk < p.inner; chunk += {{ depth }}u) {
        for (var j = local; j < {{ quads * size }}u; j += wg) {
            let quad = j % {{ quads }}u;
            let m = j / {{ quads }}u;
            let k = chunk + quad * 4u;
            var value = vec4<f32>();
            if (row + m < p.rows && k < p.inner) {
{{ row_quad("a", "a_start + (row + m) * p.a_row") }}
            }
            a_tile[quad][m / {{ side }}u][(m % {{ side }}u) ^ (quad * {{ swizzle }}u)] = value;
        }
        for (var j = local; j < {{ quads * size }}u; j += wg) {
$$ if by_rows
            let quad = j % {{ quads }}u;
            let n = j / {{ quads }}u;
$$ else
            let quad = j / {{ size }}u;
            let n = j % {{ size }}u;
$$ endif
            let k = chunk + quad * 4u;
            var value = vec4<f32>();
            if (column + n < p.columns && k < p.inner) {
$$ if by_rows
{{ row_quad("b", "b_start + (column + n) * p.b_row") }}
$$ else
$$ for i in range(4)
                value[{{ i }}] = select(0.0, f32(b[b_start + min(k + {{ i }}u, p.inner - 1u) * p.b_row + column + n]), k + {{ i }}u < p.inner);
$$ endfor
$$ endif
            }
            b_tile[quad][n / {{ side }}u][(n % {{ side }}u) ^ (quad * {{ swizzle }}u)] = value;
        }
        workgroupBarrier();
{{ add_quads("a_tile", "b_tile", "steps", swizzle, own, own) }}
        workgroupBarrier();
    }
$$ for r in range(own)
    if (row + below + {{ side * r }}u < p.rows) {
$$ for c in range(own)
        if (column + right + {{ side * c }}u < p.columns) {
            put(y_start, batch, row + below + {{ side * r }}u, column + right + {{ side * c }}u, sum{{ r }}_{{ c // 4 }}[{{ c % 4 }}]);
        }
$$ endfor
    }
$$ endfor
$$ endcall
