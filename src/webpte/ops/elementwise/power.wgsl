// By squaring: exact for small integers, and right for negative bases.
fn whole_power_{{ number }}(base: {{ number }}, exponent: u32) -> {{ number }} {
    var left = exponent;
    var square = base;
    var result = {{ number }}(1);
    while (left > 0u) {
        if ((left & 1u) != 0u) {
            result *= square;
        }
        square *= square;
        left >>= 1u;
    }
    return result;
}

$$ if number == "f32"
// pow of a positive base. Powers of two are split off, so that the logarithm is small and what is lost of it too.
fn positive_power(base: f32, exponent: f32) -> f32 {
    let bits = bitcast<u32>(base);
    let tiny = bits < 0x800000u;  // frexp need not support denormals, which are bits * 2^-149
    let parts = frexp(select(base, f32(bits), tiny));
    let low = parts.fract < 0.70710678;
    let fraction = select(parts.fract, 2.0 * parts.fract, low);
    let twos_of_base = f32(parts.exp - i32(low) - select(0, 149, tiny));
    if (abs(exponent) > 1e11) {
        // Beyond, every base but 1 over- or underflows, and so would the computation below.
        return exp2(select(-300.0, 300.0, (twos_of_base + log2(fraction) > 0.0) == (exponent > 0.0)));
    }
    let scaled = exponent * twos_of_base;
    let nearest = round(scaled);
    let rest = (scaled - nearest) + exponent * log2(fraction);
    // Two halves: the power of two alone may overflow where the product does not.
    let twos = clamp(nearest + round(rest), -300.0, 300.0);
    let half = floor(0.5 * twos);
    return exp2(rest - round(rest)) * exp2(half) * exp2(twos - half);
}

fn power_f32(a: f32, b: f32) -> f32 {
    if (b == 0.0 || a == 1.0) {
        return 1.0;
    }
    if (is_nan(a)) {
        return a;
    }
    if (is_nan(b)) {
        return b;
    }
    let size = abs(a);
    if (is_infinite(b)) {
        return select(select(0.0, abs(b), (size > 1.0) == (b > 0.0)), 1.0, size == 1.0);
    }
    let whole = trunc(b) == b;
    if (whole && abs(b) <= 64.0) {
        let result = whole_power_f32(a, u32(abs(b)));
        return select(result, 1.0 / result, b < 0.0);
    }
    let odd = whole && abs(b) < 16777216.0 && (u32(abs(b)) & 1u) != 0u;  // larger floats are even
    let negative = (bitcast<u32>(a) >> 31u) != 0u;
    var result = size;
    if (is_infinite(a) || size == 0.0) {
        result = select(1.0 / size, size, b > 0.0);
    } else if (negative && !whole) {
        return nan_like(a);
    } else if (b == 0.5) {
        result = sqrt(size);
    } else {
        result = positive_power(size, b);
    }
    return select(result, -result, negative && odd);
}
$$ else
fn power_i32(a: i32, b: i32) -> i32 {
    if (b >= 0) {
        return whole_power_i32(a, u32(b));
    }
    // A fraction, except where the base is its own inverse.
    return select(0, select(1, a, (b & 1) != 0), a == 1 || a == -1);
}
$$ endif
