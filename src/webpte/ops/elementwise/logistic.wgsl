// The exponent is limited: what overflows need not become infinite. Below, 0 (it would be denormal), also times infinity.
fn logistic(x: f32) -> f32 {
    return select(1.0 / (1.0 + exp(min(-x, 88.0))), 0.0, x < -88.0);
}
