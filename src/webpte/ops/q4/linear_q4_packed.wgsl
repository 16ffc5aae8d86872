{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "packed.wgsl" import scale_of $}
{# The product of int8 and 4-bit codes for many rows: as linear_q4_shared.wgsl, but four codes are multiplied at once. Every
   step of 32 lies in one group. x: see linear_q4_pack.wgsl. #}
{$ set x_type = "vec2<u32>" $}
{$ set w_type = "u32" $}
{$ set s_type = scale_type $}
{$ set side = size // 4 $}
{$ set each = 4 // weights $}
{$ include "q4/linear_q4_bindings.wgsl" $}

const ONES = 0x01010101u;

// Eight codes of row n are tile[word][n / {{ side }}][n % {{ side }} ^ word * {{ side // 4 }}], those of even k and those of odd k. The words of a row
// begin in different banks, and so do neighbouring rows.
var<workgroup> x_tile: array<array<array<vec2<u32>, {{ side }}>, 4>, 4>;
var<workgroup> w_tile: array<array<array<vec2<u32>, {{ side }}>, 4>, 4>;
var<workgroup> w_scales: array<array<f32, {{ side }}>, 4>;

// Codes from 0 to 15, less 8, as signed bytes.
fn signed(codes: u32) -> u32 {
    let flipped = codes ^ 0x08080808u;
    return flipped | ((flipped & 0x08080808u) * 30u);
}

// Integers are exact: only the sums over steps are rounded. Tails clamp their reads and skip their writes.
$$ call per_workgroup()
    let column = (workgroup % p.column_groups) * {{ side * each }}u;
    let row = (workgroup / p.column_groups) * {{ size }}u;
    let right = local % {{ side }}u;
    let below = local / {{ side }}u;
$$ for r in range(4)
    let own{{ r }} = x[min(row + below + {{ side * r }}u, p.rows - 1u) * (p.row_words + 1u)];
    let zero{{ r }} = bitcast<i32>(own{{ r }}.y);
    var sum{{ r }} = vec4<f32>();
$$ endfor
    let steps = p.step;  // a literal would be unrolled, for which some devices have too few registers
    for (var start = 0u; start < p.row_words; start += 4u) {
        for (var j = local; j < {{ size * 4 }}u; j += wg) {
            let word = j % 4u;
            let m = j / 4u;
            x_tile[word][m / {{ side }}u][(m % {{ side }}u) ^ (word * {{ side // 4 }}u)] =
                x[min(row + m, p.rows - 1u) * (p.row_words + 1u) + 1u + start + word];
        }
$$ for v in range(weights)
        for (var j = local; j < {{ side * each * 4 }}u; j += wg) {
            let c = j / 4u;
            let word = j % 4u;
            let n = min(column + c, p.columns - 1u);
            let q = weight{{ v }}[n * p.row_words + start + word];
            w_tile[word][c / {{ side }}u{{ " + %du" % (v * each) if v }}][(c % {{ side }}u) ^ (word * {{ side // 4 }}u)] =
                vec2<u32>(signed(q & 0x0f0f0f0fu), signed((q >> 4u) & 0x0f0f0f0fu));
            if (word == 0u) {
                w_scales[c / {{ side }}u{{ " + %du" % (v * each) if v }}][c % {{ side }}u] =
                    {{ scale_of("scales%d" % v, ("start / %du * p.scale_stride + " % group_words if group_words else "") ~ "p.first + n", scale_type) }};
            }
        }
$$ endfor
        workgroupBarrier();
        var total = vec4<i32>();
$$ for r in range(4)
        var part{{ r }} = vec4<i32>();
$$ endfor
        for (var k = 0u; k < steps; k++) {
            let swizzle = k * {{ side // 4 }}u;
$$ for c in range(4)
            let b{{ c }} = w_tile[k][{{ c }}][right ^ swizzle];
            total[{{ c }}] += dot4I8Packed(b{{ c }}.x, ONES);
            total[{{ c }}] += dot4I8Packed(b{{ c }}.y, ONES);
$$ endfor
$$ for r in range(4)
            let a{{ r }} = x_tile[k][{{ r }}][below ^ swizzle];
$$ for c in range(4)
            part{{ r }}[{{ c }}] += dot4I8Packed(a{{ r }}.x, b{{ c }}.x);
            part{{ r }}[{{ c }}] += dot4I8Packed(a{{ r }}.y, b{{ c }}.y);
$$ endfor
$$ endfor
        }
        let scale = vec4<f32>(w_scales[0][right], w_scales[1][right], w_scales[2][right], w_scales[3][right]);
$$ for r in range(4)
        sum{{ r }} += scale * vec4<f32>(part{{ r }} - zero{{ r }} * total);
$$ endfor
        workgroupBarrier();
    }
$$ for r in range(4)
    if (row + below + {{ side * r }}u < p.rows) {
        let result{{ r }} = bitcast<f32>(own{{ r }}.x) * sum{{ r }};
$$ for c in range(each)
        if (column + right + {{ side * c }}u < p.columns) {
            put(row + below + {{ side * r }}u, p.first + column + right + {{ side * c }}u{$ for n in range(c, 4, each) $}, result{{ r }}[{{ n }}]{$ endfor $});
        }
$$ endfor
    }
$$ endfor
$$ endcall
