// sin (quarter 0) and cos (quarter 1) with an absolute error below 2e-7; a device's own may be off by 5e-4 already
// between -pi and pi, and need not support large angles.
struct Angle {
    quarters: i32,  // to subtract, modulo 4
    rest: f32,  // between -pi / 4 and pi / 4
}

// Up to |x| = 50000: the multiple of pi / 2 is taken off in parts of nine bits, so each product is exact.
fn small_angle(x: f32) -> Angle {
    let quarters = round(x * 0.63661977);
    let r = (((x - quarters * 1.5703125) - quarters * 0.00048351287841796875) - quarters * 3.1385570764541626e-7)
        - quarters * 6.077100628e-11;
    return Angle(i32(quarters), r);
}

// The upper word of a product.
fn high_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u);
}

// Any finite angle from 1 on: its mantissa times those bits of 2 / pi that do not give multiples of four quarters.
fn large_angle(x: f32) -> Angle {
    var two_by_pi = array<u32, 8>(
        0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
    let bits = bitcast<u32>(x);
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let first = ((bits >> 23u) & 0xffu) - 120u;  // of the bits that count
    let word = min(first >> 5u, 4u);
    let shift = first & 31u;
    var parts = vec3<u32>();
    for (var k = 0u; k < 3u; k++) {
        let next = select(two_by_pi[word + k + 1u] >> (32u - max(shift, 1u)), 0u, shift == 0u);
        parts[k] = (two_by_pi[word + k] << shift) | next;
    }
    let carried = high_product(mantissa, parts.z);
    let low = mantissa * parts.y + carried;
    let high = mantissa * parts.x + high_product(mantissa, parts.y) + u32(low < carried);
    // Two bits of quarters, then the fraction; from a half on it belongs to the next quarter and is negative.
    let fraction = bitcast<i32>((high << 2u) | (low >> 30u));
    let quarters = i32(high >> 30u) + i32(fraction < 0);
    let rest = f32(fraction) * 3.6572951e-10;  // pi / 2 / 2^32
    let negative = (bits >> 31u) != 0u;
    return Angle(select(quarters, -quarters, negative), select(rest, -rest, negative));
}

fn sine(x: f32, quarter: i32) -> f32 {
    if (is_infinite(x)) {
        return nan_like(x);
    }
    var angle = small_angle(clamp(x, -50000.0, 50000.0));
    if (abs(x) > 50000.0) {
        angle = large_angle(x);
    }
    let r = angle.rest;
    let t = r * r;
    let at = (angle.quarters + quarter) & 3;
    let odd = r + r * t * (-0.16666667 + t * (0.008333332 + t * (-0.00019840081 + t * 2.7249184e-6)));
    let even = 1.0 - 0.5 * t + t * t * (0.041666668 + t * (-0.0013888888 + t * (2.4800596e-5 - t * 2.7300337e-7)));
    let result = select(odd, even, (at & 1) != 0);
    let turned = select(result, -result, (at & 2) != 0);
    return select(turned, x, quarter == 0 && abs(x) < 1e-4);  // -0 stays -0
}
