{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ include "loads.wgsl" $}
{$ include "rows.wgsl" $}
{$ include "bytes.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded $}
{$ set normed = weight_type != "" $}
{$ set numbers = "vec4<f32>" if wide == 4 else "f32" $}

var<storage> x: {{ array_of(type) }};  // (M, K)
$$ if normed
var<storage> weight: {{ array_of(weight_type) }};  // (K)
$$ endif
var<storage> y: array<{{ "vec2<u32>" if packed else "vec4<f16>" if halves | default(false) else numbers }}>;

// Load k of the row that starts at a load, times the factor of the row and the weight if rows are normalized.
fn numbers_at(start: u32, k: u32{{ ", factor: f32" if normed }}) -> {{ numbers }} {
    let v = {{ loaded("x[start + k]", type) }};
$$ if normed
    let normalized = v * factor * {{ loaded("weight[k]", weight_type) }};
    return {{ "%s(normalized)" % ("rounded_halves" if wide == 4 else "rounded_half") if type.startswith("f16") else "normalized" }};
$$ else
    return v;
$$ endif
}

// Multiplied by the reciprocal, as torchao does: a quotient may round to another neighbour.
fn codes_of(v: {{ numbers }}, scale: f32, zero: f32) -> {{ numbers }} {
    return clamp(round(v * (1.0 / scale)) + zero, {{ numbers }}(p.lowest), {{ numbers }}(p.highest));
}

{$ set factor = ", factor" if normed else "" $}
// The range of a row, and 0, decides its scale and its zero point: see affine_choose.wgsl, whose bits they have.
$$ call rows_main(subgroups)
    let i = thread_index(id, groups);
    let lane = i % LANES;
    let steps = select(0u, p.steps, i < p.threads);
    let start = i / LANES * p.steps;
$$ if normed
    var squares = {{ numbers }}();
    for (var k = lane; k < steps; k += LANES) {
        let v = {{ loaded("x[start + k]", type) }};
        squares += v * v;
    }
    let factor = inverseSqrt(sum_over_lanes(lane, total(squares)) / p.columns + p.norm_eps);
$$ endif
    var lows = {{ numbers }}();
    var highs = {{ numbers }}();
    for (var k = lane; k < steps; k += LANES) {
        let v = numbers_at(start, k{{ factor }});
        lows = min(lows, v);
        highs = max(highs, v);
    }
$$ if wide == 4
    let own_low = min(min(lows.x, lows.y), min(lows.z, lows.w));
    let own_high = max(max(highs.x, highs.y), max(highs.z, highs.w));
$$ else
    let own_low = lows;
    let own_high = highs;
$$ endif
    let low = -highest_over_lanes(lane, -own_low);
    let high = highest_over_lanes(lane, own_high);
$$ if halves | default(false)
    // The row begins with the exponent of a power of two. Divided by it the largest numbers are 64 to 128, or up to 256 if
    // they are not finite: see linear_q4_halves.wgsl.
    let exponent = max(i32(bitcast<u32>(max(high, -low)) >> 23u) - 133, -126);
    let inverse = bitcast<f32>(u32(127 - exponent) << 23u);
    let first = i / LANES * (p.steps + 1u);
    if (lane == 0u && i < p.threads) {
        y[first] = vec4<f16>(f16(exponent));
    }
    for (var k = lane; k < steps; k += LANES) {
        y[first + 1u + k] = vec4<f16>(numbers_at(start, k{{ factor }}) * inverse);
    }
$$ else
    let scale = max((high - low) / (p.highest - p.lowest), p.eps);
    let zero = clamp(p.lowest - round(low / scale), p.lowest, p.highest);
$$ if packed
    // See linear_q4_pack.wgsl for the layout.
    let first = i / LANES * (p.steps / 2u + 1u);
    if (lane == 0u && i < p.threads) {
        y[first] = vec2<u32>(bitcast<u32>(scale), bitcast<u32>(i32(zero)));
    }
    for (var k = lane; k < steps / 2u; k += LANES) {
        let a = vec4<i32>(codes_of(numbers_at(start, 2u * k{{ factor }}), scale, zero));
        let b = vec4<i32>(codes_of(numbers_at(start, 2u * k + 1u{{ factor }}), scale, zero));
        y[first + 1u + k] = vec2<u32>(word_of(vec4<i32>(a.xz, b.xz), 4u), word_of(vec4<i32>(a.yw, b.yw), 4u));
    }
$$ else
    for (var k = lane; k < steps; k += LANES) {
        y[start + k] = (codes_of(numbers_at(start, k{{ factor }}), scale, zero) - zero) * scale;
    }
$$ endif
$$ endif
$$ endcall
