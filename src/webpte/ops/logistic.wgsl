// The exponent is limited: what overflows need not become infinite.
fn logistic(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(min(-x, 88.0)));
}
