{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{# For many rows: a workgroup of 64 owns 32 by 32 results, and holds the operands of 16 steps of K in shared memory. #}
{$ set a_type = type $}
{$ set b_type = type $}
{$ include "matmul/matmul_put.wgsl" $}

// 16 steps of K by 32 rows, or columns: tile[place(k, n)][n % 4]. The four of an invocation are constants of the inner
// array, which cost no check of an index and are one load.
var<workgroup> a_tile: array<array<f32, 4>, 128>;
var<workgroup> b_tile: array<array<f32, 4>, 128>;

// Where four neighbours from n on lie. The steps of a row begin in different banks.
fn place(k: u32, n: u32) -> u32 {
    return k * 8u + ((n / 4u) ^ (k % 8u));
}

$$ call per_workgroup()
    let tile = workgroup / p.column_groups;
    let row = (tile % p.row_tiles) * 32u;
    let batch = tile / p.row_tiles;
    let column = (workgroup % p.column_groups) * 32u;
    let own_row = local / 8u * 4u;
    let own_column = local % 8u * 4u;
    let a_start = start(batch, p.a_outer, p.a_head);
    let b_start = start(batch, p.b_outer, p.b_head);
    let y_start = start(batch, p.y_outer, p.y_head);
$$ for r in range(4)
    var sum{{ r }} = vec4<f32>();
$$ endfor
    for (var chunk = 0u; chunk < p.inner; chunk += 16u) {
        // 64 invocations fetch 512 elements of each operand, neighbours next to each other in memory. What lies outside
        // counts as 0.
        for (var i = local; i < 512u; i += wg) {
            let m = row + i / 16u;
            let k = chunk + i % 16u;
            var found = 0.0;
            if (m < p.rows && k < p.inner) {
                found = f32(a[a_start + m * p.a_row + k]);
            }
            a_tile[place(i % 16u, i / 16u)][i / 16u % 4u] = found;
        }
        for (var i = local; i < 512u; i += wg) {
$$ if by_rows
            let n = i / 16u;
            let step = i % 16u;
$$ else
            let n = i % 32u;
            let step = i / 32u;
$$ endif
            let k = chunk + step;
            var found = 0.0;
            if (column + n < p.columns && k < p.inner) {
                found = f32(b[b_start + {{ "(column + n) * p.b_row + k" if by_rows else "k * p.b_row + column + n" }}]);
            }
            b_tile[place(step, n)][n % 4u] = found;
        }
        workgroupBarrier();
        for (var k = 0u; k < p.depth; k++) {
            let m = place(k, own_row);
            let n = place(k, own_column);
            let b_row = vec4<f32>(b_tile[n][0], b_tile[n][1], b_tile[n][2], b_tile[n][3]);
$$ for r in range(4)
            sum{{ r }} += a_tile[m][{{ r }}] * b_row;
$$ endfor
        }
        workgroupBarrier();
    }
    var results: array<vec4<f32>, 4>;
$$ for r in range(4)
    results[{{ r }}] = sum{{ r }};
$$ endfor
    for (var r = 0u; r < p.tile_rows && row + own_row + r < p.rows; r++) {
        for (var n = 0u; n < p.tile_columns && column + own_column + n < p.columns; n++) {
            put(y_start, batch, row + own_row + r, column + own_column + n, results[r][n]);
        }
    }
$$ endcall
