{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> logits: array<{{ type }}>;  // (M, V)
@group(1) @binding(1) var<storage, read> labels: array<i32>;  // (M,)
@group(1) @binding(2) var<storage, read_write> losses: array<f32>;  // (M,)
@group(1) @binding(3) var<storage, read_write> d_logits: array<{{ type }}>;  // (M, V)

// e^v for v <= 0; below -104 it is 0 in f32.
fn power(v: f32) -> f32 {
    return exp(max(v, -104.0));
}

// One invocation per row. A row with a negative label does not count.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = thread_index(id, groups);
    if (row >= p.threads) {
        return;
    }
    let start = row * p.columns;
    let end = start + p.columns;
    if (labels[row] < 0) {
        losses[row] = 0.0;
        for (var i = start; i < end; i++) {
            d_logits[i] = {{ type }}(0.0);
        }
        return;
    }
    let label = start + min(u32(labels[row]), p.columns - 1u);
    var highest = -3.4e38;
    for (var i = start; i < end; i++) {
        highest = max(highest, f32(logits[i]));
    }
    // Partial sums of bounded length keep the rounding error of long rows small.
    var sum = 0.0;
    for (var block = start; block < end; block += 256u) {
        let stop = min(block + 256u, end);
        var part = 0.0;
        for (var i = block; i < stop; i++) {
            part += power(f32(logits[i]) - highest);
        }
        sum += part;
    }
    losses[row] = (log(sum) + highest - f32(logits[label])) / p.count;
    for (var i = start; i < end; i++) {
        let share = power(f32(logits[i]) - highest) / sum;
        d_logits[i] = {{ type }}((share - f32(i == label)) / p.count);
    }
}
