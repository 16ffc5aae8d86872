// erf with an absolute error below 2e-7 (and a relative one below 3e-7): polynomials of our own fit, in x * x below 1
// and times exp(-x * x) above.
fn error_function(x: f32) -> f32 {
    let size = abs(x);
    if (size < 1.0) {
        let t = x * x;
        return x * (1.1283791 + t * (-0.37612626 + t * (0.11283597 + t * (-0.02685433 + t * (0.0051893122
            + t * (-0.0008018855 + t * 7.8824974e-5))))));
    }
    let limited = min(size, 4.2);  // where erf is 1 in f32
    let t = 1.0 / (1.0 + 0.5 * limited);
    let tail = 0.00053875055 + t * (0.27445546 + t * (0.32657173 + t * (0.11274845 + t * (0.38665774
        + t * (-0.043767177 + t * -0.057963364)))));
    let result = 1.0 - exp(-limited * limited) * tail;
    return select(result, -result, x < 0.0);
}
