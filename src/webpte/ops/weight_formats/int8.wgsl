{# As int4.wgsl. A word has four codes. #}
{$ include "bytes.wgsl" $}
$$ if units is defined
const UNITS = vec4<f32>(1.0);
$$ elif decode is defined
const UNIT = 1.0;
$$ endif

// The weights in a word, -128 to 127 each.
fn codes(word: u32) -> vec4<f32> {
    return vec4<f32>(signed_bytes(word));
}
