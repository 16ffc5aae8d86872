// exp(x) - 1. Near 0 a series keeps the relative precision, and -0 stays -0.
fn exp_minus_one(x: f32) -> f32 {
    if (abs(x) < 0.3) {
        return x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666668 + x * (0.008333334 + x * 0.0013888889)))));
    }
    return exp(x) - 1.0;
}
