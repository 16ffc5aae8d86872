$$ if bits == 8
{$ include "bytes.wgsl" $}
$$ if units is defined
const UNITS = vec4<f32>(1.0);
$$ endif

// The weights in a word, -128 to 127 each.
fn codes(word: u32) -> vec4<f32> {
    return vec4<f32>(signed_bytes(word));
}
$$ else
// A code stays where it lies in its half word. As a float, the bits of FLOATS are a power of two so large that the last bit
// of the code counts 1: a code among its lower bits is added to it without a conversion and without a shift.
$$ if high_first
const MASKS = vec4<u32>(240u, 15u, 61440u, 3840u);
$$ else
const MASKS = vec4<u32>(15u, 240u, 3840u, 61440u);
$$ endif
$$ if units is defined
// One power of two for all codes: a CPU has few registers for constants. A code counts 16^i times, and the other factor
// is multiplied by UNITS, which is exact.
const UNITS = 1.0 / vec4<f32>(MASKS / 15u);
const FLOATS = vec4<u32>(0x4b000000u);
const ZERO = 8388608.0 + 8.0 / UNITS;  // the weight 0, whose code is 8
$$ elif high_first
const FLOATS = vec4<u32>(0x49000000u, 0x4b000000u, 0x45000000u, 0x47000000u);
const ZERO = vec4<f32>(524296.0, 8388616.0, 2056.0, 32776.0);  // the weight 0, whose code is 8
$$ else
const FLOATS = vec4<u32>(0x4b000000u, 0x49000000u, 0x47000000u, 0x45000000u);
const ZERO = vec4<f32>(8388616.0, 524296.0, 32776.0, 2056.0);  // the weight 0, whose code is 8
$$ endif

// The weights for the four codes in the lower half of a word, -8 to 7 each{{ ", over UNITS" if units is defined }}.
fn codes(word: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>((vec4<u32>(word) & MASKS) | FLOATS) - ZERO;
}
$$ endif
