{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "packed.wgsl" import scale_of $}
{$ set x_type = type $}
{$ set w_type = "u32" $}
{$ set s_type = scale_type $}
{$ set row_groups = "p.groups" $}
{$ include "q4/linear_q4_bindings.wgsl" $}

{$ include loader $}

$$ for v in range(weights)
fn product{{ v }}(row: u32, n: u32) -> f32 {
    var k = 0u;
    var sum = 0.0;
    for (var g = 0u; g < p.groups; g++) {
        var part = 0.0;
$$ if offset
        let offset = offset_codes({{ v }}u, g, p.first + n).x * offset_scale({{ v }}u, p.first + n);
        var x_sum = 0.0;
$$ endif
        let end = min(k + p.group, p.inner);
        for (; k < end; k++) {
            let at = n * p.row_codes + k;
{# Of 4-bit codes, the first in a byte may be in either half. #}
            let byte = codes(weight{{ v }}[at / {{ 32 // bits }}u] >> (({{ "at >> 1u" if bits == 4 else "at" }} & 3u) * 8u));
            let code = {{ "select(byte.x, byte.y, (at & 1u) == 1u)" if bits == 4 else "byte.x" }};
            part += f32(x[row * p.inner + k]) * code;
$$ if offset
            x_sum += f32(x[row * p.inner + k]);
$$ endif
        }
        sum += {{ scale_of("scales%d" % v, "g * p.scale_stride + p.first + n", scale_type) }} * part;
$$ if offset
        sum += offset * x_sum;
$$ endif
    }
    return sum;
}

$$ endfor
// One invocation per output, one code at a time: groups and rows may begin anywhere.
$$ call per_thread()
    let n = i % p.columns;
    let row = i / p.columns;
    put(row, p.first + n{$ for v in range(weights) $}, product{{ v }}(row, n){$ endfor $});
$$ endcall
