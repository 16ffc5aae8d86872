$$ if bits == 8
{$ include "bytes.wgsl" $}
const UNITS = vec4<f32>(1.0);

// The weights in a word, -128 to 127 each.
fn codes(word: u32) -> vec4<f32> {
    return vec4<f32>(signed_bytes(word));
}
$$ else
// A code stays where it lies in its half word, so it counts 16^i times: the other factor, or the sum, is multiplied by
// UNITS, which is exact.
$$ if high_first
const MASKS = vec4<u32>(240u, 15u, 61440u, 3840u);
const UNITS = vec4<f32>(0.0625, 1.0, 0.000244140625, 0.00390625);
$$ else
const MASKS = vec4<u32>(15u, 240u, 3840u, 61440u);
const UNITS = vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625);
$$ endif
// As a float this is 2^23, whose last bit counts 1: a code among its lower bits is added to it without a conversion.
const FLOAT = 0x4b000000u;
const ZERO = 8388608.0 + 8.0 / UNITS;  // the value of the weight 0, whose code is 8

// The weights for the four codes in the lower half of a word, -8 to 7 each, over UNITS.
fn codes(word: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>((vec4<u32>(word) & MASKS) | vec4<u32>(FLOAT)) - ZERO;
}
$$ endif
