{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "packed.wgsl" import stored $}
{$ set bytes = zero_type in ("i8", "u8") $}

var<storage> x: array<{{ type }}>;
var<storage> scales: array<{{ scale_type }}>;
var<storage> zeros: array<{{ stored(zero_type) }}>;

{$ include "reduce_walk.wgsl" $}

// The least and the greatest element of a block, and 0.
fn range_of(block: u32) -> vec2<f32> {
    let first = first_of(block);
    var range = vec2<f32>();
    for (var o = 0u; o < p.outer; o++) {
        let run = first + run_of(o);
        for (var k = 0u; k < p.inner; k++) {
            let v = f32(x[run + k * p.inner_stride]);
            range = vec2<f32>(min(range.x, v), max(range.y, v));
        }
    }
    return range;
}

fn scale_of(range: vec2<f32>) -> f32 {
$$ if mapping == "ASYMMETRIC"
    return max((range.y - range.x) / (p.highest - p.lowest), p.eps);
$$ elif mapping == "SYMMETRIC"
    return max(max(-range.x, range.y) / ((p.highest - p.lowest) / 2.0), p.eps);
$$ else
    return max(max(range.x / p.lowest, range.y / p.highest), p.eps);
$$ endif
}

fn zero_of(range: vec2<f32>, scale: f32) -> f32 {
$$ if mapping == "ASYMMETRIC"
    return clamp(p.lowest - round(range.x / scale), p.lowest, p.highest);
$$ else
    return trunc((p.highest + p.lowest + 1.0) / 2.0);
$$ endif
}

// {{ "Four blocks per invocation: their zero points share a word." if bytes else "One block per invocation." }}
$$ call per_thread("t")
$$ if bytes
    let end = min(t * 4u + 4u, p.blocks);
    var word = 0u;
    for (var block = t * 4u; block < end; block++) {
        let range = range_of(block);
        let scale = scale_of(range);
        scales[block] = {{ scale_type }}(scale);
        word |= (u32(i32(zero_of(range, scale))) & 255u) << ((block & 3u) * 8u);
    }
    zeros[t] = word;
$$ else
    let range = range_of(t);
    let scale = scale_of(range);
    scales[t] = {{ scale_type }}(scale);
    zeros[t] = {{ zero_type }}(zero_of(range, scale));
$$ endif
$$ endcall
