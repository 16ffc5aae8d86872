{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "packed.wgsl" import scale_of $}
{$ from "tiles.wgsl" import add_quads, quad_sums, quad_tile $}
{# A workgroup owns `size` by `size` results, and an invocation `own` by `own` of them, 4 or 8. Of two weights each has half
   of the columns, so that a pair needs no more registers and memory than one. quads: vectors along K in workgroup memory.
   group_words: words of a group, a constant because a division by a uniform takes many instructions; 0 if a row is one
   group. #}
{$ set x_type = "vec4<" ~ type ~ ">" $}
{$ set w_type = "u32" $}
{$ set word_quads = 8 // bits $}
{$ set words = quads // word_quads $}
{$ set s_type = scale_type $}
{$ set side = size // own $}
{$ set each = own // weights $}
{$ set swizzle = 8 // quads $}
{$ set row_groups = "(p.row_words / %du)" % group_words if group_words else "1u" $}
{$ macro swizzled(quad) $}({{ "(%s) * %du" % (quad, swizzle) if swizzle > 1 else quad }}){$ endmacro $}
{$ include "q4/linear_q4_bindings.wgsl" $}

{$ include loader $}

{{ quad_tile("x_tile", size, quads, own) }}
{{ quad_tile("w_tile", size, quads, own) }}

// A workgroup goes along K in steps of {{ 4 * quads }} that all of it has read together. An invocation owns rows and columns that
// lie apart. Tails clamp their reads and skip their writes.
$$ call per_workgroup()
    let column = (workgroup % p.column_groups) * {{ side * each }}u;
    let row = (workgroup / p.column_groups) * {{ size }}u;
    let right = local % {{ side }}u;
    let below = local / {{ side }}u;
{{ quad_sums(own, own) }}
    let steps = p.step;  // a literal would be unrolled, for which some devices have too few registers
    for (var start = 0u; start < p.row_words; start += {{ words }}u) {
        for (var j = local; j < {{ size * quads }}u; j += wg) {
            let quad = start * {{ word_quads }}u + j % {{ quads }}u;
            var value = vec4<f32>();
            if (quad < p.row_words * {{ word_quads }}u) {
                value = vec4<f32>(x[min(row + j / {{ quads }}u, p.rows - 1u) * p.row_words * {{ word_quads }}u + quad]);
            }
            x_tile[j % {{ quads }}u][j / {{ quads * side }}u][(j / {{ quads }}u % {{ side }}u) ^ {{ swizzled("j %% %du" % quads) }}] = value;
        }
$$ for v in range(weights)
{# Where the tile of codes has fewer words than the workgroup has invocations, a loop over them would run once for some of
   them and never for others. FXC unrolls it, and then rejects the barrier after it. #}
$$ if side * each * words < workgroup
        if (local < {{ side * each * words }}u) {
            let j = local;
$$ else
        for (var j = local; j < {{ side * each * words }}u; j += wg) {
$$ endif
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
                scale = {{ scale_of("scales%d" % v, ("at / %du * p.scale_stride + " % group_words if group_words else "") ~ "p.first + n", scale_type) }};
$$ if offset
                offset = offset_codes({{ v }}u, {{ "at / %du" % group_words if group_words else "0u" }}, p.first + n).x * offset_scale({{ v }}u, p.first + n);
$$ endif
            }
            let c = j / {{ words }}u;
$$ for h in range(word_quads)
            w_tile[word * {{ word_quads }}u + {{ h }}u][c / {{ side }}u{{ " + %du" % (v * each) if v }}][(c % {{ side }}u) ^ {{ swizzled("word * %du + %du" % (word_quads, h)) }}] = codes(q{{ " >> 16u" if h }}) * scale{{ " + offset" if offset }};
$$ endfor
        }
$$ endfor
        workgroupBarrier();
{{ add_quads("x_tile", "w_tile", "steps", swizzle, own, own) }}
        workgroupBarrier();
    }
$$ for r in range(own)
    if (row + below + {{ side * r }}u < p.rows) {
$$ for c in range(each)
        if (column + right + {{ side * c }}u < p.columns) {
            put(row + below + {{ side * r }}u, p.first + column + right + {{ side * c }}u{$ for n in range(c, own, each) $}, sum{{ r }}_{{ n // 4 }}[{{ n % 4 }}]{$ endfor $});
        }
$$ endfor
    }
$$ endfor
$$ endcall
