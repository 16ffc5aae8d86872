{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "packed.wgsl" import scale_of $}
{$ from "tiles.wgsl" import quad_sums $}
{$ from loader import places $}
{# As linear_q4_shared.wgsl, with operands in f16: the products of 4 * quads numbers along K are added in f16, which is half an
   instruction for each where the device multiplies pairs, and these sums in f32. A step lies in one group. x: see
   quantize_rows.wgsl. Numbers of a row are below 128 and those of a weight up to 16, so that no sum in f16 overflows. #}
{$ set x_type = "vec4<f16>" $}
{$ set w_type = "u32" $}
{$ set s_type = scale_type $}
{$ set side = size // own $}
{$ set each = own // weights $}
{$ set words = quads // 2 $}
{$ set jobs = side * quads $}
{$ set row_groups = "(p.row_words / %du)" % group_words if group_words else "1u" $}
{$ set group = "start / %du" % group_words if group_words else "0u" $}
{$ include "q4/linear_q4_bindings.wgsl" $}

// Four numbers along K of {{ own }} rows of an invocation; the numbers of four columns of an invocation, and their scales.
var<workgroup> x_tile: array<array<array<vec4<f16>, {{ side }}>, {{ own }}>, {{ quads }}>;
var<workgroup> w_tile: array<array<array<array<vec4<f16>, {{ side }}>, {{ own // 4 }}>, 4>, {{ quads }}>;
var<workgroup> w_scales: array<array<vec4<f32>, {{ side }}>, {{ own // 4 }}>;

{$ set pairs = true $}
{$ include loader $}

// Tails clamp their reads and skip their writes.
$$ call per_workgroup()
    let column = (workgroup % p.column_groups) * {{ side * each }}u;
    let row = (workgroup / p.column_groups) * {{ size }}u;
    let right = local % {{ side }}u;
    let below = local / {{ side }}u;
    let row_quads = p.row_words * 2u + 1u;
{{ quad_sums(own, own) }}
    let steps = p.step;  // a literal would be unrolled, for which some devices have too few registers
    for (var start = 0u; start < p.row_words; start += {{ words }}u) {
        for (var j = local; j < {{ size * quads }}u; j += wg) {
            let m = j / {{ quads }}u;
            let quad = j % {{ quads }}u;
            x_tile[quad][m / {{ side }}u][m % {{ side }}u] = x[min(row + m, p.rows - 1u) * row_quads + 1u + start * 2u + quad];
        }
$$ for q in range(own // 4)
        if (local / {{ jobs }}u == {{ q }}u) {
            let quad = local % {{ jobs }}u / {{ side }}u;
            let at = start + quad / 2u;
            let shift = quad % 2u * 16u;
$$ for c in range(4 * q, 4 * q + 4)
            let n{{ c }} = min(column + right + {{ side * (c % each) }}u, p.columns - 1u);
            let word{{ c }} = weight{{ c // each }}[n{{ c }} * p.row_words + at] >> shift;
$$ endfor
            let left_pair = (word{{ 4 * q }} & 0xffffu) | (word{{ 4 * q + 1 }} << 16u);
            let right_pair = (word{{ 4 * q + 2 }} & 0xffffu) | (word{{ 4 * q + 3 }} << 16u);
            let scale = vec4<f32>(
$$ for c in range(4 * q, 4 * q + 4)
                {{ scale_of("scales%d" % (c // each), (group ~ " * p.scale_stride + " if group_words else "") ~ "p.first + n%d" % c, scale_type) }},
$$ endfor
            );
$$ if offset
            let offset = vec4<f32>(
$$ for c in range(4 * q, 4 * q + 4)
                offset_codes({{ c // each }}u, {{ group }}, p.first + n{{ c }}).x * offset_scale({{ c // each }}u, p.first + n{{ c }}),
$$ endfor
            );
            // Weights are relative to the larger one of both, so that they fit.
            let unit = max(max(abs(scale), abs(offset) / 8.0), vec4<f32>(1e-30));
$$ else
            let unit = scale;
$$ endif
$$ for k in range(4)
            let numbers{{ k }} = vec4<f16>(weights_of(left_pair{{ " >> %du" % places[k] if places[k] }}), weights_of(right_pair{{ " >> %du" % places[k] if places[k] }}));
            w_tile[quad][{{ k }}][{{ q }}][right] = {{ "vec4<f16>(vec4<f32>(numbers%d) * (scale / unit) + offset / unit)" % k if offset else "numbers%d" % k }};
$$ endfor
            if (quad == 0u) {
                w_scales[{{ q }}][right] = unit;
            }
        }
$$ endfor
        workgroupBarrier();
$$ for r in range(own)
$$ for q in range(own // 4)
        var part{{ r }}_{{ q }} = vec4<f16>();
$$ endfor
$$ endfor
        for (var k = 0u; k < steps; k++) {
$$ for i in range(4)
$$ for q in range(own // 4)
            let b{{ i }}_{{ q }} = w_tile[k][{{ i }}][{{ q }}][right];
$$ endfor
$$ endfor
$$ for r in range(own)
            let a{{ r }} = x_tile[k][{{ r }}][below];
$$ for i in range(4)
$$ for q in range(own // 4)
            part{{ r }}_{{ q }} += a{{ r }}[{{ i }}] * b{{ i }}_{{ q }};
$$ endfor
$$ endfor
$$ endfor
        }
$$ for q in range(own // 4)
        let unit{{ q }} = w_scales[{{ q }}][right];
$$ for r in range(own)
        sum{{ r }}_{{ q }} += unit{{ q }} * vec4<f32>(part{{ r }}_{{ q }});
$$ endfor
$$ endfor
        workgroupBarrier();
    }
$$ for r in range(own)
    if (row + below + {{ side * r }}u < p.rows) {
        // A power of two, whose exponent the row begins with.
        let factor = bitcast<f32>(u32(i32(x[(row + below + {{ side * r }}u) * row_quads].x) + 127) << 23u);
$$ for c in range(each)
        if (column + right + {{ side * c }}u < p.columns) {
            put(row + below + {{ side * r }}u, p.first + column + right + {{ side * c }}u{$ for n in range(c, own, each) $}, factor * sum{{ r }}_{{ n // 4 }}[{{ n % 4 }}]{$ endfor $});
        }
$$ endfor
    }
$$ endfor
$$ endcall
