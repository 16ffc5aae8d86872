{# One addition per multiplication, so that compilers fuse each pair: a dot product is added up first. #}
fn plus_product(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
