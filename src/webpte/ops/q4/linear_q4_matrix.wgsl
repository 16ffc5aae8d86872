{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "matrix.wgsl" import each_sum, in_turns, matrix_tiles, multiply_tiles $}
{$ from "packed.wgsl" import scale_of $}
{# As linear_q4_shared.wgsl, on matrix units: see matrix.wgsl. Of two weights each has half of the columns of a part. tail: K is
   not a multiple of depth. x: see quantize_rows.wgsl. A column of the weight is divided by a power of two, so that f16 has its
   numbers: they are below 2^14, and those of a row below 128. #}
{$ set x_type = "vec4<f16>" $}
{$ set w_type = "u32" $}
{$ set s_type = scale_type $}
{$ set word_quads = 8 // bits $}
{$ set quads = depth // 4 $}
{$ set words = quads // word_quads $}
{$ set own = 32 // weights $}
{$ set each = size // weights $}
{$ set x_fills = size * quads // workgroup $}
{$ set w_fills = each * words // workgroup $}
{$ set row_groups = "(p.row_words / %du)" % group_words if group_words else "1u" $}
{$ set group = "at / %du" % group_words if group_words else "0u" $}
{$ set group_scales = group ~ " * p.scale_stride + " if group_words else "" $}
{$ include "q4/linear_q4_bindings.wgsl" $}

{$ include loader $}

{{ matrix_tiles(size, shape, depth) }}

// The exponent of a column whose numbers are at most `most`.
fn exponent_of(most: f32) -> i32 {
    return max(i32(bitcast<u32>(most) >> 23u) - 140, -126);
}

fn power_of_two(exponent: i32) -> f32 {
    return bitcast<f32>(u32(exponent + 127) << 23u);
}

// A sum times a power of two, in two steps: one may be too large or too small for a float.
fn scaled(sum: f32, exponent: i32) -> f32 {
    let half = exponent / 2;
    return sum * power_of_two(half) * power_of_two(exponent - half);
}

// Tails clamp their reads and skip their writes. An invocation reads the same rows and columns in every step.
$$ call per_workgroup(subgroups=true)
    let column = (workgroup % p.column_groups) * {{ each }}u;
    let row = (workgroup / p.column_groups) * {{ size }}u;
    let word = local % {{ words }}u;
    let own_quad = local % {{ quads }}u;
    let row_quads = p.row_words * {{ word_quads }}u;
$$ for f in range(x_fills)
    let m{{ f }} = local / {{ quads }}u{{ " + %du" % (f * workgroup // quads) if f }};
    let x{{ f }} = min(row + m{{ f }}, p.rows - 1u) * (row_quads + 1u) + 1u;
    let x_place{{ f }} = tile_place(m{{ f }}, own_quad);
$$ endfor
$$ for v in range(weights)
$$ for f in range(w_fills)
    let c{{ v }}_{{ f }} = (local + {{ f * workgroup }}u) / {{ words }}u;
    let n{{ v }}_{{ f }} = min(column + c{{ v }}_{{ f }}, p.columns - 1u);
    let w{{ v }}_{{ f }} = n{{ v }}_{{ f }} * p.row_words;
    let w_place{{ v }}_{{ f }} = tile_place(c{{ v }}_{{ f }} / {{ own }}u * 32u + c{{ v }}_{{ f }} % {{ own }}u{{ " + %du" % own if v }}, word{{ " * 2u" if word_quads > 1 }});
    // The largest scale of a column decides its exponent.
    var most{{ v }}_{{ f }} = 0.0;
    for (var g = word; g < {{ row_groups }}; g += {{ words }}u) {
        most{{ v }}_{{ f }} = max(most{{ v }}_{{ f }}, abs({{ scale_of("scales%d" % v, "g * p.scale_stride + p.first + n%d_%d" % (v, f), scale_type) }}));
    }
    strips[{{ (v * w_fills + f) * workgroup }}u + local] = most{{ v }}_{{ f }};
$$ endfor
$$ endfor
    workgroupBarrier();
$$ for v in range(weights)
$$ for f in range(w_fills)
    for (var i = 0u; i < {{ words }}u; i++) {
        most{{ v }}_{{ f }} = max(most{{ v }}_{{ f }}, strips[{{ (v * w_fills + f) * workgroup }}u + local - word + i]);
    }
    let exponent{{ v }}_{{ f }} = exponent_of({{ 2 ** (bits - 1) }}.0 * most{{ v }}_{{ f }}{{ " + 128.0 * abs(offset_scale(%du, p.first + n%d_%d))" % (v, v, f) if offset }});
    let inverse{{ v }}_{{ f }} = power_of_two(-exponent{{ v }}_{{ f }});
$$ endfor
$$ endfor
$$ call in_turns(size, shape)
        for (var start = 0u; start < p.row_words; start += {{ words }}u) {
$$ if tail
            let quad = start * {{ word_quads }}u + own_quad;
            let at = min(start + word, p.row_words - 1u);
$$ for f in range(x_fills)
            x_tile[x_place{{ f }}] = select(vec4<f16>(), x[x{{ f }} + min(quad, row_quads - 1u)], quad < row_quads);
$$ endfor
$$ else
            let at = start + word;
$$ for f in range(x_fills)
            x_tile[x_place{{ f }}] = x[x{{ f }} + start * {{ word_quads }}u + own_quad];
$$ endfor
$$ endif
$$ for v in range(weights)
$$ for f in range(w_fills)
            let q{{ v }}_{{ f }} = weight{{ v }}[w{{ v }}_{{ f }} + at];
            let scale{{ v }}_{{ f }} = inverse{{ v }}_{{ f }} * {{ scale_of("scales%d" % v, group_scales ~ "p.first + n%d_%d" % (v, f), scale_type) }};
$$ if offset
            let offset{{ v }}_{{ f }} = inverse{{ v }}_{{ f }} * offset_codes({{ v }}u, {{ group }}, p.first + n{{ v }}_{{ f }}).x * offset_scale({{ v }}u, p.first + n{{ v }}_{{ f }});
$$ endif
$$ for h in range(word_quads)
            w_tile[w_place{{ v }}_{{ f }}{{ " + 1u" if h }}] = vec4<f16>(codes(q{{ v }}_{{ f }}{{ " >> 16u" if h }}) * scale{{ v }}_{{ f }}{{ " + offset%d_%d" % (v, f) if offset }});
$$ endfor
$$ endfor
$$ endfor
            workgroupBarrier();
{{ multiply_tiles(size, shape, depth) }}
            workgroupBarrier();
        }
        // The exponents are integers that f16 has. The tile is free until the next turn.
        if (word == 0u) {
$$ for v in range(weights)
$$ for f in range(w_fills)
            x_tile[c{{ v }}_{{ f }}{{ " + %du" % each if v }}].x = f16(exponent{{ v }}_{{ f }});
$$ endfor
$$ endfor
        }
$$ call each_sum(size, shape, weights)
            if (row + below < p.rows && column + right < p.columns) {
                let row_exponent = x[(row + below) * (row_quads + 1u)].x;
                put(row + below, p.first + column + right{$ for v in range(weights) $}, scaled(strips[place{{ " + %du" % (v * own) if v }}], i32(row_exponent + x_tile[right{{ " + %du" % (v * each) if v }}].x)){$ endfor $});
            }
$$ endcall
$$ endcall
$$ endcall
