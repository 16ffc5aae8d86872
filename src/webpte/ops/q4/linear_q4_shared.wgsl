{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "tiles.wgsl" import add_quads, quad_tile $}
{# A workgroup owns `size` by `size` results, 32 or 64, and an invocation 16 of them. Of two weights each has half of the
   columns, so that a pair needs no more registers and memory than one. group_words: words of a group, a constant because
   a division by a uniform takes many instructions; 0 if a row is one group. #}
{$ set x_type = "vec4<" ~ type ~ ">" $}
{$ set w_type = "u32" $}
{$ set word_quads = 8 // bits $}
{$ set words = 8 // word_quads $}
{$ set s_type = scale_type $}
{$ set side = size // 4 $}
{$ set each = 4 // weights $}
{$ set row_groups = "(p.row_words / %du)" % group_words if group_words else "1u" $}
{$ include "q4/linear_q4_bindings.wgsl" $}

{$ include "q4/codes_q4.wgsl" $}

{{ quad_tile("x_tile", size, 32) }}
{{ quad_tile("w_tile", size, 32) }}

// A workgroup goes along K in steps of 32 that all of it has read together. An invocation owns four rows and columns that
// lie apart. Tails clamp their reads and skip their writes.
$$ call per_workgroup()
    let column = (workgroup % p.column_groups) * {{ side * each }}u;
    let row = (workgroup / p.column_groups) * {{ size }}u;
    let right = local % {{ side }}u;
    let below = local / {{ side }}u;
$$ for r in range(4)
    var sum{{ r }} = vec4<f32>();
$$ endfor
    let steps = p.step;  // a literal would be unrolled, for which some devices have too few registers
    for (var start = 0u; start < p.row_words; start += {{ words }}u) {
        for (var j = local; j < {{ size * 8 }}u; j += wg) {
            let quad = start * {{ word_quads }}u + j % 8u;
            var value = vec4<f32>();
            if (quad < p.row_words * {{ word_quads }}u) {
                value = vec4<f32>(x[min(row + j / 8u, p.rows - 1u) * p.row_words * {{ word_quads }}u + quad]);
            }
            x_tile[j % 8u][j / {{ 8 * side }}u][(j / 8u % {{ side }}u) ^ (j % 8u)] = value;
        }
$$ for v in range(weights)
        for (var j = local; j < {{ side * each * words }}u; j += wg) {
            let n = min(column + j / {{ words }}u, p.columns - 1u);
            let word = j % {{ words }}u;
            let at = start + word;
            var q = 0u;
            var scale = 0.0;
$$ if offset
            var offset = 0.0;
$$ endif
            if (at < p.row_words) {
                q = weight{{ v }}[n * p.row_words + at];
                scale = f32(scales{{ v }}[{{ "at / %du * p.scale_stride + " % group_words if group_words }}p.first + n]);
$$ if offset
                offset = offset_codes({{ v }}u, {{ "at / %du" % group_words if group_words else "0u" }}, p.first + n).x * offset_scale({{ v }}u, p.first + n);
$$ endif
            }
            let c = j / {{ words }}u;
$$ for h in range(word_quads)
            w_tile[word * {{ word_quads }}u + {{ h }}u][c / {{ side }}u{{ " + %du" % (v * each) if v }}][(c % {{ side }}u) ^ (word * {{ word_quads }}u + {{ h }}u)] = codes(q{{ " >> 16u" if h }}) * scale{{ " + offset" if offset }};
$$ endfor
        }
$$ endfor
        workgroupBarrier();
{{ add_quads("x_tile", "w_tile", "steps") }}
        workgroupBarrier();
    }
$$ for r in range(4)
    if (row + below + {{ side * r }}u < p.rows) {
$$ for c in range(each)
        if (column + right + {{ side * c }}u < p.columns) {
$$ if weights == 2
            let value = gated(sum{{ r }}[{{ c }}], sum{{ r }}[{{ c + 2 }}]);
$$ else
            let value = sum{{ r }}[{{ c }}];
$$ endif
            put(row + below + {{ side * r }}u, p.first + column + right + {{ side * c }}u, value);
        }
$$ endfor
    }
$$ endfor
$$ endcall
