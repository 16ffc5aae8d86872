// A code stays where it lies in its half word, so it counts 16^i times: the other factor, or the sum, is multiplied by
// UNITS, which is exact.
$$ if high_first
const MASKS = vec4<i32>(240, 15, 61440, 3840);
const UNITS = vec4<f32>(0.0625, 1.0, 0.000244140625, 0.00390625);
$$ else
const MASKS = vec4<i32>(15, 240, 3840, 61440);
const UNITS = vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625);
$$ endif

// The four codes in the lower half of a word, 0 to 15 each, over UNITS.
fn codes(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(i32(word)) & MASKS);
}
