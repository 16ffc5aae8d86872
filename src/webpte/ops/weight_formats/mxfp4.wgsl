{# As int4.wgsl. The numbers are -6 to 6; without their sign, 0, 0.5, 1, 1.5, 2, 3, 4 and 6. Below 1, a number has no leading
   one: as a normal float it is n = 0.5 or 0.75, and 2 n - 1 is the number. From 1 on, n is less than 2 n - 1. #}
{$ set places = [0, 4, 8, 12] $}
$$ if pairs is defined
fn weights_of(pair: u32) -> vec2<f16> {
    let normal = unpack2x16float(((pair & 0x00070007u) << 9u) + 0x38003800u);
    let size = min(normal, 2.0 * normal - 1.0);
    return vec2<f16>(select(size, -size, (vec2<u32>(pair, pair >> 16u) & vec2<u32>(8u)) != vec2<u32>()));
}
$$ elif decode is defined
// All codes of a word at once, as the first bytes of halves. After the sign is a bit that is set unless the number is 0,
// then two zeros, the exponent and the mantissa, which is 0 for 0.5: 4 times the number, and never a subnormal half, which a
// device may take for 0.
const UNIT = 0.25;

fn halves(word: u32) -> vec4<u32> {
    let doubled = word << 1u;
    let sizes = doubled & (word | (word >> 1u) | 0xddddddddu);
    let signs = (word & 0x88888888u) | ((word | doubled | (word << 2u)) & 0x77777777u);
    let even = ((signs << 4u) & 0xc0c0c0c0u) | (sizes & 0x0e0e0e0eu);
    let odd = (signs & 0xc0c0c0c0u) | ((sizes >> 4u) & 0x0e0e0e0eu);
    return vec4<u32>(even << 8u, odd << 8u, even, odd) & vec4<u32>(0xff00ff00u);
}
{$ for name, half in (("codes", "x"), ("upper_codes", "y")) $}

// 4 times the weights for the four codes in the {{ "lower" if half == "x" else "upper" }} half of a word.
fn {{ name }}(word: u32) -> vec4<f32> {
    let h = halves(word);
    return vec4<f32>(unpack2x16float(h.x).{{ half }}, unpack2x16float(h.y).{{ half }}, unpack2x16float(h.z).{{ half }}, unpack2x16float(h.w).{{ half }});
}
{$ endfor $}
$$ else
$$ if units is defined
const UNITS = vec4<f32>(1.0);
$$ endif

// The weights for the four codes in the lower half of a word.
fn codes(word: u32) -> vec4<f32> {
    let first = vec4<u32>(word) << vec4<u32>(28u, 24u, 20u, 16u);  // each code in the first bits of a float
    let normal = bitcast<vec4<f32>>(((first >> vec4<u32>(6u)) & vec4<u32>(0x01c00000u)) + vec4<u32>(0x3f000000u));
    let size = min(normal, 2.0 * normal - 1.0);
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(size) | (first & vec4<u32>(0x80000000u)));
}
$$ endif
