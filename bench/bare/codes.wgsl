// Four codes of a half word, each still in its own bits: x is divided by 16, 256 and 4096 beforehand, in place of shifts.
const UNITS = vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625);
fn codes(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(i32(word)) & vec4<i32>(15, 240, 3840, 61440));
}
