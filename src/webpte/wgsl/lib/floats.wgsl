// Floats by their bits: WGSL code may be compiled as if NaN and infinities did not occur.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_infinite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

// NaN that depends on a value: as a constant it would be refused.
fn nan_like(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
}

// Return an integer that sorts like the float; -0 comes just before 0. Not for NaN.
fn order_key(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return bits ^ ((bits >> 31u) & 0x7fffffff);
}

fn from_order_key(key: i32) -> f32 {
    return bitcast<f32>(key ^ ((key >> 31u) & 0x7fffffff));
}
