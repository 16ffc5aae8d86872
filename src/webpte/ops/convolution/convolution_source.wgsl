// Return the positions along one axis that the outputs `at` read through a tap, past the end of the axis where there is none.
fn source(at: vec4<u32>, tap: u32, stride: u32, padding: u32, dilation: u32) -> vec4<u32> {
    let reach = tap * dilation;
$$ if transposed
    let ahead = at + padding;
    let exists = (ahead >= vec4<u32>(reach)) & ((ahead - reach) % stride == vec4<u32>());
    return select(vec4<u32>(0xffffffffu), (ahead - reach) / stride, exists);
$$ else
    return at * stride + reach - padding;  // before the first element it wraps around
$$ endif
}
