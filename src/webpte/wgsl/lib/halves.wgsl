// The f16 nearest to a number, ties to even: subnormal below 2^-14, infinite from 65520 on. By bits: conversions there
// and back may be folded away, quantizeToF16 flushes subnormals, and not every device has f16.
fn rounded_half(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let sign = bits & 0x80000000u;
    if (size >= 0x7f800000u) {
        return x;
    }
    if (size >= 0x477ff000u) {
        return bitcast<f32>(sign | 0x7f800000u);
    }
    if (size >= 0x38800000u) {
        return bitcast<f32>(sign | ((size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u));
    }
    // Multiples of 2^-24; values below half of one become zero.
    let shift = min(126u - (size >> 23u), 25u);
    let digits = (size & 0x7fffffu) | 0x800000u;
    let steps = (digits + (1u << (shift - 1u)) - 1u + ((digits >> shift) & 1u)) >> shift;
    return bitcast<f32>(sign | bitcast<u32>(f32(steps) * 5.9604644775390625e-8));
}

fn rounded_halves(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(rounded_half(v.x), rounded_half(v.y), rounded_half(v.z), rounded_half(v.w));
}
