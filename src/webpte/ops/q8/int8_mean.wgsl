{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ include "bytes.wgsl" $}

var<storage> x: array<u32>;
var<storage> y: array<u32>;

var<workgroup> sums: array<vec4<i32>, {{ workgroup }}>;

$$ if not words
fn code_at(at: u32) -> i32 {
    return extractBits(bitcast<i32>(x[at >> 2u]), (at & 3u) * 8u, 8u);
}

$$ endif
// Each workgroup owns four neighbours of the output, its invocations every wg-th pixel.
$$ call per_workgroup()
$$ if words
    let tiles = p.channels / 4u;
    let start = (workgroup / tiles) * p.pixels * tiles + workgroup % tiles;
$$ else
    let element = min(workgroup * 4u + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.count - 1u));
    let start = (element / p.channels) * p.pixels * p.channels + element % p.channels;
$$ endif
    var sum = vec4<i32>();
    for (var pixel = local; pixel < p.pixels; pixel += wg) {
$$ if words
        sum += signed_bytes(x[start + pixel * tiles]);
$$ else
        let at = start + pixel * p.channels;
        sum += vec4<i32>(code_at(at.x), code_at(at.y), code_at(at.z), code_at(at.w));
$$ endif
    }
    sums[local] = sum;
    for (var half = wg / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (local < half) {
            sums[local] += sums[local + half];
        }
    }
    if (local == 0u) {
        // The zero point is added before rounding, as XNNPACK does here.
        let codes = round(vec4<f32>(sums[0] + p.bias) * p.scale + p.zero);
        let limited = vec4<i32>(clamp(codes, vec4<f32>(p.low), vec4<f32>(p.high)));
        y[workgroup] = word_of(limited, min(p.count - workgroup * 4u, 4u));
    }
$$ endcall
