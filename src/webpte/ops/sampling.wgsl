{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> logits: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> tokens: array<i32>;
@group(1) @binding(2) var<storage, read_write> log_probabilities: array<f32>;

var<workgroup> shared_value: array<f32, {{ lanes }}>;
var<workgroup> shared_index: array<u32, {{ lanes }}>;

fn hash(v: u32) -> u32 {
    let state = v * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

// Noise whose maximum over tokens falls on each with its probability.
fn gumbel(row_key: u32, token: u32) -> f32 {
    let uniform_draw = (f32(hash(row_key ^ token) >> 8u) + 0.5) / 16777216.0;
    return -log(-log(uniform_draw));
}

// Floats as integers that compare the same way.
fn sort_key(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits ^ 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    shared_value[lane] = value;
    for (var half = {{ lanes }}u / 2u; half > 0u; half /= 2u) {
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

// The largest value and the first index that has it.
fn best_over_lanes(lane: u32, value: f32, index: u32) {
    shared_value[lane] = value;
    shared_index[lane] = index;
    for (var half = {{ lanes }}u / 2u; half > 0u; half /= 2u) {
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

// exp(score), summed over the tokens whose key reaches `threshold`; with `counting`, their number.
fn weigh(lane: u32, start: u32, highest: f32, scale: f32, threshold: u32, counting: bool) -> f32 {
    var sum = 0.0;
    for (var t = lane; t < p.vocabulary; t += {{ lanes }}u) {
        let x = f32(logits[start + t]);
        if (sort_key(x) >= threshold) {
            sum += select(exp((x - highest) * scale), 1.0, counting);
        }
    }
    return sum_over_lanes(lane, sum);
}

// The largest key at which at least `wanted` is still reached, found bit by bit.
fn threshold_for(lane: u32, start: u32, highest: f32, scale: f32, wanted: f32, counting: bool) -> u32 {
    var low = 0u;
    for (var bit = 32u; bit > 0u; bit--) {
        let candidate = low | (1u << (bit - 1u));
        let reached = weigh(lane, start, highest, scale, candidate, counting);
        low = select(low, candidate, reached >= wanted);
    }
    return low;
}

@compute @workgroup_size(wg)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * groups.x;
    let in_range = row * {{ lanes }}u < p.threads;  // uniform in the workgroup: a folded grid may have idle ones
    let start = select(0u, row * p.vocabulary, in_range);
    let temperature = bitcast<f32>(live(p.temperature));
    let top_k = u32(live(p.top_k));
    let top_p = bitcast<f32>(live(p.top_p));

    var best = -3.4e38;
    var index = 0xffffffffu;
    for (var t = lane; t < p.vocabulary; t += {{ lanes }}u) {
        let x = f32(logits[start + t]);
        if (x > best || index == 0xffffffffu) {
            best = x;
            index = t;
        }
    }
    best_over_lanes(lane, best, index);
    let highest = shared_value[0];
    var token = shared_index[0];
    workgroupBarrier();
    let total = weigh(lane, start, highest, 1.0, 0u, false);

    if (temperature > 0.0) {
        let scale = 1.0 / temperature;
        var threshold = 0u;
        if (top_k > 0u && top_k < p.vocabulary) {
            threshold = threshold_for(lane, start, highest, scale, f32(top_k), true);
        }
        if (top_p < 1.0) {
            let mass = weigh(lane, start, highest, scale, threshold, false);
            let narrower = threshold_for(lane, start, highest, scale, top_p * mass, false);
            threshold = max(threshold, narrower);
        }
        let row_key = hash(hash(hash(u32(live(p.seed))) ^ u32(live(p.step))) ^ row);
        best = -3.4e38;
        index = 0xffffffffu;
        for (var t = lane; t < p.vocabulary; t += {{ lanes }}u) {
            let x = f32(logits[start + t]);
            if (sort_key(x) >= threshold) {
                let score = (x - highest) * scale + gumbel(row_key, t);
                if (score > best || index == 0xffffffffu) {
                    best = score;
                    index = t;
                }
            }
        }
        best_over_lanes(lane, best, index);
        token = shared_index[0];
    }
    if (lane == 0u && in_range) {
        tokens[row] = i32(token);
        log_probabilities[row] = f32(logits[start + token]) - highest - log(total);
    }
}
