{# Decode codes of 4 bits that are integers from -8 to 7. A loader declares `codes`, the first four weights of a word. If
   `units` is set, these are over the constant UNITS. If `decode` is set, it declares `upper_codes` too, the last four, and
   both are over the constant UNIT: it may have faster ways. If `pairs` is set, it declares only `weights_of`, for f16. `places` are the first four codes' bits. #}
{$ set high_first = high_first | default(false) $}
{$ set places = places | default([0, 4, 8, 12]) $}
$$ if pairs is defined
// The weights of two columns, -8 to 7 each, for the code in the lower bits of both halves of a word. A code among the
// lower bits of 1024 in f16 is added to it.
fn weights_of(pair: u32) -> vec2<f16> {
    return vec2<f16>(unpack2x16float((pair & 0x000f000fu) | 0x64006400u)) - 1032.0h;
}
$$ elif decode is defined and decode == "halves"
// Two codes at once, in the two halves of a word: a code is shifted to the first bits of the mantissa of 16 in f16. A device
// that multiplies a half by a float in one instruction converts nothing. The sums have 24 times the other factor too much.
const UNIT = 1.0;

fn halves(word: u32) -> vec4<u32> {
    let placed = vec4<u32>(word << 6u, word << 2u, word >> 2u, word >> 6u).{{ "yxwz" if high_first else "xyzw" }};
    return (placed & vec4<u32>(0x03c003c0u)) | vec4<u32>(0x4c004c00u);
}
{$ for name, half in (("codes", "x"), ("upper_codes", "y")) $}

// The weights for the four codes in the {{ "lower" if half == "x" else "upper" }} half of a word, and 24.
fn {{ name }}(word: u32) -> vec4<f32> {
    let h = halves(word);
    return vec4<f32>(unpack2x16float(h.x).{{ half }}, unpack2x16float(h.y).{{ half }}, unpack2x16float(h.z).{{ half }}, unpack2x16float(h.w).{{ half }});
}
{$ endfor $}
$$ elif decode is defined and decode == "bytes"
// A code in the upper half of a byte is 16 times its weight, as a signed byte with the first bit flipped. Devices that
// convert any byte of a word in one instruction need no other.
const UNIT = 0.0625;
{$ set even, odd = ("high", "low") if high_first else ("low", "high") $}
{$ for name, first in (("codes", 0), ("upper_codes", 16)) $}

// 16 times the weights for the four codes in the {{ "upper" if first else "lower" }} half of a word.
fn {{ name }}(word: u32) -> vec4<f32> {
    let flipped = word ^ 0x88888888u;
    let low = bitcast<i32>((flipped << 4u) & 0xf0f0f0f0u);
    let high = bitcast<i32>(flipped & 0xf0f0f0f0u);
    return vec4<f32>(vec4<i32>(
        extractBits({{ even }}, {{ first }}u, 8u),
        extractBits({{ odd }}, {{ first }}u, 8u),
        extractBits({{ even }}, {{ first + 8 }}u, 8u),
        extractBits({{ odd }}, {{ first + 8 }}u, 8u),
    ));
}
{$ endfor $}
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
$$ if decode is defined
const UNIT = 1.0;

fn upper_codes(word: u32) -> vec4<f32> {
    return codes(word >> 16u);
}
$$ endif
$$ endif
