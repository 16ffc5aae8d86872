// A mask is read as bits: WGSL need not support infinities, and minus infinity hides a key.
$$ if mask == "bool"
fn hides(i: u32) -> bool {
    return mask[i] == 0u;
}

fn bias(i: u32) -> f32 {
    return 0.0;
}
$$ elif mask == "half"
fn half_bits(i: u32) -> u32 {
    return (mask[i >> 1u] >> (16u * (i & 1u))) & 0xffffu;
}

fn hides(i: u32) -> bool {
    return half_bits(i) == 0xfc00u;
}

fn bias(i: u32) -> f32 {
    let bits = half_bits(i);
    if ((bits & 0x7c00u) == 0x7c00u) {
        return bitcast<f32>(((bits & 0x8000u) << 16u) | 0x7f800000u | ((bits & 0x3ffu) << 13u));  // unpacking may lose it
    }
    return unpack2x16float(bits).x;
}
$$ else
fn hides(i: u32) -> bool {
    return mask[i] == 0xff800000u;
}

fn bias(i: u32) -> f32 {
    return bitcast<f32>(mask[i]);
}
$$ endif
