{# As int4.wgsl. The numbers are -6 to 6; without their sign, 0, 0.5, 1, 1.5, 2, 3, 4 and 6. Below 1, a number has no leading
   one: as a normal float it is n = 0.5 or 0.75, and 2 n - 1 is the number. From 1 on, n is less than 2 n - 1. #}
{$ set places = [0, 4, 8, 12] $}
$$ if pairs is defined
fn weights_of(pair: u32) -> vec2<f16> {
    let normal = unpack2x16float(((pair & 0x00070007u) << 9u) + 0x38003800u);
    let size = min(normal, 2.0 * normal - 1.0);
    return vec2<f16>(select(size, -size, (vec2<u32>(pair, pair >> 16u) & vec2<u32>(8u)) != vec2<u32>()));
}
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
$$ if decode is defined

fn upper_codes(word: u32) -> vec4<f32> {
    return codes(word >> 16u);
}
$$ endif
$$ endif
