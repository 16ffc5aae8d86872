// sin (quarter 0) and cos (quarter 1) with an absolute error below 2e-7 up to |x| = 50000; a device's own may be off by
// 5e-4 already between -pi and pi. The multiple of pi / 2 is taken off in parts of nine bits, so each product is exact.
fn sine(x: f32, quarter: i32) -> f32 {
    let turns = round(x * 0.63661977);
    let r = (((x - turns * 1.5703125) - turns * 0.00048351287841796875) - turns * 3.1385570764541626e-7)
        - turns * 6.077100628e-11;
    let t = r * r;
    let at = (i32(turns) + quarter) & 3;
    let odd = r + r * t * (-0.16666667 + t * (0.008333332 + t * (-0.00019840081 + t * 2.7249184e-6)));
    let even = 1.0 - 0.5 * t + t * t * (0.041666668 + t * (-0.0013888888 + t * (2.4800596e-5 - t * 2.7300337e-7)));
    let result = select(odd, even, (at & 1) != 0);
    return select(result, -result, (at & 2) != 0);
}
