// The int8 codes of values; p.inverse (of the scale) and p.zero are the output's.
fn codes_of(values: vec4<f32>) -> vec4<i32> {
    return vec4<i32>(clamp(round(values * p.inverse) + p.zero, vec4<f32>(-128.0), vec4<f32>(127.0)));
}
