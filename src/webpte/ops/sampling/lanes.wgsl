{# Reductions over the invocations of a workgroup, whose number is a power of two. #}
var<workgroup> shared_value: array<f32, {{ invocations }}>;
var<workgroup> shared_index: array<u32, {{ invocations }}>;

fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    shared_value[lane] = value;
    for (var half = p.invocations / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            shared_value[lane] += shared_value[lane + half];
        }
    }
    workgroupBarrier();
    let total = shared_value[0];
    workgroupBarrier();
    return total;
}

// The largest value and the first index that has it, in element 0.
fn best_over_lanes(lane: u32, value: f32, index: u32) {
    shared_value[lane] = value;
    shared_index[lane] = index;
    for (var half = p.invocations / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            let other = shared_value[lane + half];
            let at = shared_index[lane + half];
            if (other > shared_value[lane] || (other == shared_value[lane] && at < shared_index[lane])) {
                shared_value[lane] = other;
                shared_index[lane] = at;
            }
        }
    }
    workgroupBarrier();
}
