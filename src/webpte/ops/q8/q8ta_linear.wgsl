{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ include "q8/q8ta_operands.wgsl" $}

// Each invocation owns {{ tile }} rows by 4 columns: a word per row, where the results are codes. The last rows clamp
// their reads and skip their writes.
$$ call per_thread()
    let row = (i / p.column_tiles) * {{ tile }}u;
    let bound = (i % p.column_tiles) * 4u;  // the first column, relative to the part of the weights that is bound
    let column = p.first_column + bound;
    let steps = p.inner / 4u;
$$ for r in range(tile)
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * steps;
    var sum{{ r }} = vec4<i32>();
$$ endfor
    for (var k = 0u; k < steps; k++) {
$$ for c in range(4)
        let b{{ c }} = signed_bytes(w[(bound + {{ c }}u) * steps + k]);
$$ endfor
$$ for r in range(tile)
        let a{{ r }} = signed_bytes(x[x{{ r }} + k]) - p.x_zero;
        sum{{ r }} += vec4<i32>(dot(a{{ r }}, b0), dot(a{{ r }}, b1), dot(a{{ r }}, b2), dot(a{{ r }}, b3));
$$ endfor
    }
    let channel = column + vec4<u32>(0u, 1u, 2u, 3u);
$$ for r in range(tile)
    if (row + {{ r }}u < p.rows) {
        let values = values_of(sum{{ r }}, channel);
        let at = (row + {{ r }}u) * p.columns + column;
        put(at, values, 4u);
    }
$$ endfor
$$ endcall
