{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> ranges: array<vec2<f32>>;
var<storage> scales: array<{{ scale_type }}>;
var<storage> zeros: array<i32>;

fn zero_of(range: vec2<f32>, scale: f32) -> f32 {
$$ if balanced
    // Whichever end of the range the zero point represents with the smaller error decides it.
    let ends = range / scale;
    let by_least = (p.lowest + ends.x) + (p.highest + ends.y) > 0.0;
    return round(clamp(select(p.highest - ends.y, p.lowest - ends.x, by_least), p.lowest, p.highest));
$$ else
    return clamp(p.lowest - round(range.x / scale), p.lowest, p.highest);
$$ endif
}

$$ call per_thread()
    var range = vec2<f32>();
    for (var k = i * p.runs; k < (i + 1u) * p.runs; k++) {
        range = vec2<f32>(min(range.x, ranges[k].x), max(range.y, ranges[k].y));
    }
    let scale = max((range.y - range.x) / (p.highest - p.lowest), p.eps);
    scales[i] = {{ scale_type }}(scale);
    zeros[i] = i32(zero_of(range, scale));
$$ endcall
