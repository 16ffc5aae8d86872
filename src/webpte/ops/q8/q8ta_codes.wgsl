{$ from "walk.wgsl" import operand_positions $}
// The int8 codes of values; p.inverse (of the scale) and p.zero are the output's.
fn codes_of(values: vec4<f32>) -> vec4<i32> {
    return vec4<i32>(clamp(round(values * p.inverse) + p.zero, vec4<f32>(-128.0), vec4<f32>(127.0)));
}
{# Declare <operand>_codes for each operand: the codes of the `count` elements that share word t of the output. #}
{$ macro operand_codes(operands, flat) $}
    let count = min(p.count - t * 4u, 4u);
$$ if flat
$$ for operand in operands
    let {{ operand }}_codes = signed_bytes({{ operand }}[t]);
$$ endfor
$$ else
$$ for operand in operands
    var {{ operand }}_codes = vec4<i32>();
$$ endfor
    for (var k = 0u; k < count; k++) {
        let i = t * 4u + k;
{{ operand_positions(operands) }}
$$ for operand in operands
        {{ operand }}_codes[k] = signed_bytes({{ operand }}[{{ operand }}i >> 2u])[{{ operand }}i & 3u];
$$ endfor
    }
$$ endif
{$ endmacro $}
