{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ set x_type = "vec4<" ~ type ~ ">" $}
{$ set w_type = "u32" $}
{$ set word_quads = 8 // bits $}
{$ set words = 8 // word_quads $}
{$ set s_type = scale_type $}
{$ include "q4/linear_q4_bindings.wgsl" $}

{$ include "q4/codes_q4.wgsl" $}

// A quad of K of row, or column, n is tile[quad][n / 8][n % 8 ^ quad]. In the loop n / 8 is a constant, which costs no check
// of an index. The quads of a row begin in different banks, and so do neighbouring rows.
var<workgroup> x_tile: array<array<array<vec4<f32>, 8>, 4>, 8>;  // 32 rows by 32 of K
$$ for v in range(weights)
var<workgroup> w_tile{{ v }}: array<array<array<vec4<f32>, 8>, 4>, 8>;  // 32 columns by 32 of K
$$ endfor

// The codes in a word of column n, as numbers; zeros beyond K.
$$ for v in range(weights)
fn fill{{ v }}(c: u32, n: u32, word: u32, at: u32) {
    var q = 0u;
    var scale = 0.0;
    if (at < p.row_words) {
        q = weight{{ v }}[n * p.row_words + at];
        scale = f32(scales{{ v }}[(at / p.group_words) * p.scale_stride + p.first + n]);
    }
$$ for h in range(word_quads)
    w_tile{{ v }}[word * {{ word_quads }}u + {{ h }}u][c / 8u][(c % 8u) ^ (word * {{ word_quads }}u + {{ h }}u)] = codes(q{{ " >> 16u" if h }}) * scale;
$$ endfor
}

$$ endfor
// A workgroup of 8 by 8 owns 32 rows by 32 columns, and goes along K in steps of 32 that all of it has read together.
// An invocation owns every eighth row and column. Tails clamp their reads and skip their writes.
$$ call per_workgroup()
    let column = (workgroup % p.column_groups) * 32u;
    let row = (workgroup / p.column_groups) * 32u;
    let right = local % 8u;
    let down = local / 8u;
$$ for r in range(4)
$$ for v in range(weights)
    var sum{{ v }}_{{ r }} = vec4<f32>();
$$ endfor
$$ endfor
    for (var start = 0u; start < p.row_words; start += {{ words }}u) {
        for (var j = local; j < 256u; j += wg) {
            let quad = start * {{ word_quads }}u + j % 8u;
            var value = vec4<f32>();
            if (quad < p.row_words * {{ word_quads }}u) {
                value = vec4<f32>(x[min(row + j / 8u, p.rows - 1u) * p.row_words * {{ word_quads }}u + quad]);
            }
            x_tile[j % 8u][j / 64u][(j / 8u % 8u) ^ (j % 8u)] = value;
        }
        for (var j = local; j < {{ 32 * words }}u; j += wg) {
            let n = min(column + j / {{ words }}u, p.columns - 1u);
$$ for v in range(weights)
            fill{{ v }}(j / {{ words }}u, n, j % {{ words }}u, start + j % {{ words }}u);
$$ endfor
        }
        workgroupBarrier();
        for (var k = 0u; k < p.step; k++) {
$$ for r in range(4)
            let a{{ r }} = x_tile[k][{{ r }}][down ^ k];
$$ endfor
$$ for v in range(weights)
$$ for c in range(4)
            let b{{ v }}_{{ c }} = w_tile{{ v }}[k][{{ c }}][right ^ k];
$$ endfor
$$ for r in range(4)
$$ for c in range(4)
            sum{{ v }}_{{ r }}[{{ c }}] += dot(a{{ r }}, b{{ v }}_{{ c }});
$$ endfor
$$ endfor
$$ endfor
        }
        workgroupBarrier();
    }
$$ for r in range(4)
    if (row + down + {{ 8 * r }}u < p.rows) {
$$ for c in range(4)
        if (column + right + {{ 8 * c }}u < p.columns) {
$$ if weights == 2
            let value = gated(sum0_{{ r }}[{{ c }}], sum1_{{ r }}[{{ c }}]);
$$ else
            let value = sum0_{{ r }}[{{ c }}];
$$ endif
            put(row + down + {{ 8 * r }}u, p.first + column + right + {{ 8 * c }}u, value);
        }
$$ endfor
    }
$$ endfor
$$ endcall
