{# How a row of a cache becomes int8: relative to its largest absolute element, which is stored after it. #}
fn largest(x: vec4<f32>) -> f32 {
    let a = abs(x);
    return max(max(a.x, a.y), max(a.z, a.w));
}

fn codes(x: vec4<f32>, top: f32) -> u32 {
    return pack4x8snorm(select(vec4<f32>(), x / top, top > 0.0));
}
