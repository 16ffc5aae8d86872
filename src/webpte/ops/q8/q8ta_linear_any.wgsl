{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ include "q8/q8ta_operands.wgsl" $}

// Rows or columns that do not fill words: each invocation owns four neighbours of the flat output, wherever they lie.
$$ call per_thread()
    let first = i * 4u;
    let total = p.rows * p.columns;
    let count = min(total - first, 4u);
    let at = min(first + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(total - 1u));
    let channel = at % p.columns;
    let x_row = (at / p.columns) * p.inner;
    let w_row = channel * p.inner;
    var sums = vec4<i32>();
$$ if words
    for (var k = 0u; k < p.inner / 4u; k++) {
        sums += vec4<i32>(
$$ for lane in "xyzw"
            dot(signed_bytes(x[x_row.{{ lane }} / 4u + k]) - p.x_zero, signed_bytes(w[w_row.{{ lane }} / 4u + k])),
$$ endfor
        );
    }
$$ else
    for (var k = 0u; k < p.inner; k++) {
        sums += vec4<i32>(
$$ for lane in "xyzw"
            (x_byte(x_row.{{ lane }} + k) - p.x_zero) * w_byte(w_row.{{ lane }} + k),
$$ endfor
        );
    }
$$ endif
    put(first, values_of(sums, channel), count);
$$ endcall
