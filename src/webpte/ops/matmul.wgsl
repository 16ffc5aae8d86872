{$ include "kernel.wgsl" $}
{$ set element = type if width == 1 else "vec4<" ~ type ~ ">" $}

@group(1) @binding(0) var<storage, read> a: array<{{ type }}>;  // (B or 1, M, K)
@group(1) @binding(1) var<storage, read> b: array<{{ element }}>;  // (B, K, N)
$$ if added
@group(1) @binding(2) var<storage, read> c: array<{{ type }}>;
@group(1) @binding(3) var<storage, read_write> y: array<{{ element }}>;  // (B, M, N)
$$ else
@group(1) @binding(2) var<storage, read_write> y: array<{{ element }}>;  // (B, M, N)
$$ endif

// Each invocation owns {{ tile }} rows by 4 columns, neighbours own neighbouring columns. Past the end the last column
// is computed and written again; rows there are not written.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let column_tile = i % p.column_tiles;
    let tiles = i / p.column_tiles;
    let row = (tiles % p.row_tiles) * {{ tile }}u;
    let batch = tiles / p.row_tiles;
    let columns = min(column_tile * 4u + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
$$ for r in range(tile)
    let a{{ r }} = batch * p.a_batch + min(row + {{ r }}u, p.rows - 1u) * p.inner;
    var sum{{ r }} = vec4<f32>();
$$ endfor
$$ if width == 4
    var b_at = batch * p.inner * p.column_tiles + column_tile;
$$ else
    var b_at = batch * p.inner * p.columns + columns;
$$ endif
    for (var k = 0u; k < p.inner; k++) {
$$ if width == 4
        let b_row = vec4<f32>(b[b_at]);
        b_at += p.column_tiles;
$$ else
        let b_row = vec4<f32>(f32(b[b_at.x]), f32(b[b_at.y]), f32(b[b_at.z]), f32(b[b_at.w]));
        b_at += p.columns;
$$ endif
$$ for r in range(tile)
        sum{{ r }} += f32(a[a{{ r }} + k]) * b_row;
$$ endfor
    }
$$ for r in range(tile)
    if (row + {{ r }}u < p.rows) {
        var value = p.alpha * sum{{ r }};
$$ if added
        let c_at = batch * p.c_batch + (row + {{ r }}u) * p.c_row + columns * p.c_column;
        value += p.beta * vec4<f32>(f32(c[c_at.x]), f32(c[c_at.y]), f32(c[c_at.z]), f32(c[c_at.w]));
$$ endif
$$ if clamped
        value = min(max(value, vec4<f32>(p.lowest)), vec4<f32>(p.highest));
$$ endif
        let y_row = batch * p.rows + row + {{ r }}u;
$$ if width == 4
        y[y_row * p.column_tiles + column_tile] = {{ element }}(value);
$$ else
$$ for c in range(4)
        y[y_row * p.columns + columns[{{ c }}]] = {{ type }}(value[{{ c }}]);
$$ endfor
$$ endif
    }
$$ endfor
}
