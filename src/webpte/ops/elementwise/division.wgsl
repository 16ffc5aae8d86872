$$ if number == "f32"
// The remainder that has the sign of a, exact: by long division of the mantissas, eight bits at a time.
fn truncated_remainder_f32(a: f32, b: f32) -> f32 {
    let top = bitcast<u32>(a) & 0x7fffffffu;
    let bottom = bitcast<u32>(b) & 0x7fffffffu;
    if (top >= 0x7f800000u || bottom == 0u || bottom > 0x7f800000u) {
        return nan_like(a);
    }
    if (top < bottom) {
        return a;
    }
    // Subnormals have the exponent 1 too, but no leading bit.
    let exponent = max(bottom >> 23u, 1u);
    let divisor = (bottom & 0x7fffffu) | select(0u, 0x800000u, bottom >= 0x800000u);
    var left = max(top >> 23u, 1u) - exponent;
    var rest = ((top & 0x7fffffu) | select(0u, 0x800000u, top >= 0x800000u)) % divisor;
    while (left > 0u) {
        let step = min(left, 8u);
        rest = (rest << step) % divisor;
        left -= step;
    }
    var bits = 0u;
    if (rest != 0u) {
        let shift = countLeadingZeros(rest) - 8u;
        if (shift < exponent) {
            bits = ((exponent - shift) << 23u) | ((rest << shift) & 0x7fffffu);
        } else {
            bits = rest << (exponent - 1u);
        }
    }
    return bitcast<f32>(bits | (bitcast<u32>(a) & 0x80000000u));
}

// The remainder is exact, so the quotient is whole but for rounding: 1 // 0.1 is 9.
fn floored_quotient_f32(a: f32, b: f32) -> f32 {
    if (b == 0.0) {
        return a / b;
    }
    let rest = truncated_remainder_f32(a, b);
    var quotient = round((a - rest) / b);
    if (rest != 0.0 && (rest < 0.0) != (b < 0.0)) {
        quotient -= 1.0;
    }
    // A zero has the sign of the exact quotient.
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
    return select(quotient, bitcast<f32>(sign), quotient == 0.0);
}

// Division may be off by some units in the last place: a multiple of b must not fall below its quotient.
fn truncated_quotient_f32(a: f32, b: f32) -> f32 {
    let quotient = a / b;
    let whole = round(quotient);
    return select(trunc(quotient), whole, whole * b == a);
}
$$ else
// An integer divided by zero is an error in PyTorch; WGSL gives the dividend.
fn truncated_remainder_i32(a: i32, b: i32) -> i32 {
    return a % b;
}

fn floored_quotient_i32(a: i32, b: i32) -> i32 {
    let quotient = a / b;
    return select(quotient, quotient - 1, a % b != 0 && (a < 0) != (b < 0));
}

fn truncated_quotient_i32(a: i32, b: i32) -> i32 {
    return a / b;
}
$$ endif

// The remainder that has the sign of b.
fn floored_remainder_{{ number }}(a: {{ number }}, b: {{ number }}) -> {{ number }} {
    let zero = {{ number }}();
    let rest = truncated_remainder_{{ number }}(a, b);
    return select(rest, rest + b, rest != zero && (rest < zero) != (b < zero));
}
