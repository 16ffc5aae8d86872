{# For kernels whose rows are shared by `lanes` invocations each: 1, or the whole workgroup. #}
const LANES = {{ lanes }}u;
const BLOCK = {{ 256 * lanes }}u;  // partial sums of bounded length keep the rounding error of long rows small

fn total(v: {{ "vec4<f32>" if wide == 4 else "f32" }}) -> f32 {
    return {{ "v.x + v.y + v.z + v.w" if wide == 4 else "v" }};
}

$$ if lanes > 1
var<workgroup> by_lane: array<f32, {{ lanes }}>;

fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    by_lane[lane] = value;
    for (var half = p.lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            by_lane[lane] += by_lane[lane + half];
        }
    }
    workgroupBarrier();
    return by_lane[0];
}

fn highest_over_lanes(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    by_lane[lane] = value;
    for (var half = p.lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            by_lane[lane] = max(by_lane[lane], by_lane[lane + half]);
        }
    }
    workgroupBarrier();
    return by_lane[0];
}
$$ else
fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    return value;
}

fn highest_over_lanes(lane: u32, value: f32) -> f32 {
    return value;
}
$$ endif
