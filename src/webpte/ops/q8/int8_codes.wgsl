// Codes of the output from sums of products; p.zero, p.low and p.high are codes.
fn codes_of(sums: vec4<i32>, scale: vec4<f32>) -> vec4<i32> {
    let codes = round(vec4<f32>(sums) * scale) + p.zero;
    return vec4<i32>(clamp(codes, vec4<f32>(p.low), vec4<f32>(p.high)));
}
