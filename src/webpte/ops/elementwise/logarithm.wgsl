// WGSL's log need not be right for zeros, infinities, denormals (which are bits * 2^-149) and negative numbers.
fn logarithm(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if ((bits << 1u) == 0u) {
        return bitcast<f32>(bits | 0xff800000u);
    }
    if ((bits >> 31u) != 0u) {
        return nan_like(x);
    }
    if (bits >= 0x7f800000u) {
        return x;
    }
    return select(log(x), log(f32(bits)) - 103.27893, bits < 0x800000u);
}
