// tanh without the device's own, which may be NaN for large arguments. Near 0 a series keeps the relative precision.
fn hyperbolic_tangent(x: f32) -> f32 {
    let size = min(abs(x), 15.0);
    if (size < 0.3) {
        let t = x * x;
        let series = x + x * t * (-0.33333242 + t * (0.13325454 + t * (-0.0528501 + t * 0.016584113)));
        return select(series, x, size < 1e-5);  // -0 stays -0
    }
    let decay = exp(-2.0 * size);
    let result = (1.0 - decay) / (1.0 + decay);
    return select(result, -result, x < 0.0);
}
