{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ include "sampling/choice.wgsl" $}
{$ include "sampling/lanes.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded $}
{$ set lanes = 4 if type.endswith("x4") else 1 $}

{$ set tried = "edited" if edited else "logits" $}
{$ set tried_type = type if not edited else "f32x4" if lanes == 4 else "f32" $}

@group(1) @binding(0) var<storage, read> logits: {{ array_of(type) }};
@group(1) @binding(1) var<storage, read> choices: array<i32>;
@group(1) @binding(2) var<storage, read> parts: array<vec4<u32>>;
$$ if edited
@group(1) @binding(3) var<storage, read> edited: {{ array_of(tried_type) }};
$$ endif
@group(1) @binding({{ 4 if edited else 3 }}) var<storage, read_write> tokens: array<i32>;
@group(1) @binding({{ 5 if edited else 4 }}) var<storage, read_write> log_probabilities: array<u32>;  // bits: it may be NaN

const INVOCATIONS = {{ invocations }}u;
const BINS = 2048u;  // each divided into as many finer bins
const FINEST = 4194303u;  // the last finer bin
const PER_UNIT = 131072.0;  // finer bins in a unit of logit / temperature: 32 units are distinguished
const COARSE_PER_UNIT = 64.0;
const NAN = 0x7fc00000u;

var<workgroup> bins: array<atomic<u32>, 2048>;
var<workgroup> bin_sums: array<f32, {{ invocations }}>;
var<workgroup> holds: atomic<u32>;

// Return the distance of a logit from the highest, in bins.
fn depth(x: f32, highest: f32, scale: f32) -> u32 {
    return u32(clamp((highest - x) * scale * PER_UNIT, 0.0, f32(FINEST)));
}

// Return the weight of a token in its bin. It has as many digits as that of the most probable token.
fn weight(depth: u32) -> u32 {
    return u32(exp(f32(depth % BINS) / -PER_UNIT) * p.unit + 0.5);
}

// The contents of a bin: tokens, or their weight relative to the other bins, which are at `coarse` or deeper.
fn amount(bin: u32, coarse: u32, counting: bool, fine: bool) -> f32 {
    let scale = exp(f32(select(bin, coarse, fine)) / -COARSE_PER_UNIT);
    return f32(atomicLoad(&bins[bin])) * select(scale, 1.0, counting);
}

// One workgroup per row. What top-k and top-p leave is everything down to some depth, which is found in rounds: two for
// the k-th highest of the parts' highest, below which the k-th highest token cannot be; two for the k-th highest token;
// two for the first that make up top-p. The first of two finds the bin, the second the finer bin. Parts that end above
// are passed over.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,  // its index would be computed at every use by some drivers
) {
    let lane = local.x;
    let row = min(id.x + id.y * groups.x, p.threads / INVOCATIONS - 1u);  // a folded grid may have idle workgroups
    let choice = choice_of(row);
    let scale = choice.scale;

    if (lane == 0u) {
        atomicStore(&holds, 0u);
    }
    workgroupBarrier();
    var best = -3.4e38;
    var index = 0xffffffffu;
    for (var i = lane; i < p.parts; i += INVOCATIONS) {
        let part = parts[2u * (row * p.parts + i)];
        let found = bitcast<f32>(part.x);
        if (found > best || (found == best && part.z < index)) {
            best = found;
            index = part.z;
        }
        atomicOr(&holds, part.w);
    }
    best_over_lanes(lane, best, index);
    let highest = shared_value[0];
    var token = min(shared_index[0], p.vocabulary - 1u);
    workgroupBarrier();
$$ if edited
    best = -3.4e38;
    for (var i = lane; i < p.parts; i += INVOCATIONS) {
        best = max(best, bitcast<f32>(parts[2u * (row * p.parts + i) + 1u].z));
    }
    best_over_lanes(lane, best, 0u);
    let raw_highest = shared_value[0];
    workgroupBarrier();
$$ else
    let raw_highest = highest;
$$ endif
    var sum = 0.0;
    for (var i = lane; i < p.parts; i += INVOCATIONS) {
        let raw = bitcast<f32>(parts[2u * (row * p.parts + i) + 1u].z);
        sum += bitcast<f32>(parts[2u * (row * p.parts + i)].y) * exp(raw - raw_highest);
    }
    let total = sum_over_lanes(lane, sum);

    if (choice.temperature > 0.0) {
        let free = draws_freely(choice);
        var limit = FINEST;
        var coarse = 0u;
        var wanted = 0.0;
        for (var round = select(0u, p.rounds, free); round < p.rounds; round++) {
            let counting = round < 4u;
            let by_parts = round < 2u;
            let fine = round % 2u == 1u;
            let unlimited = takes_any_rank(choice) || (by_parts && choice.top_k > p.parts);
            if (select(choice.top_p >= 1.0, unlimited, counting)) {
                continue;
            }
            for (var i = lane; i < BINS; i += INVOCATIONS) {
                atomicStore(&bins[i], 0u);
            }
            workgroupBarrier();
            for (var i = lane; i < p.parts; i += INVOCATIONS) {
                let part_depth = depth(bitcast<f32>(parts[2u * (row * p.parts + i)].x), highest, scale);
                let above = fine && part_depth / BINS > coarse;  // none of it is in the bin that is looked into
                if (above || part_depth > limit || (!counting && part_depth == FINEST)) {
                    continue;
                }
                for (var s = i; s < p.steps; s += p.parts) {
                    let x = {{ loaded(tried ~ "[row * p.steps + s]", tried_type) }};
                    for (var c = 0u; c < p.lanes; c++) {
                        let d = select(depth(x{{ "[c]" if lanes == 4 }}, highest, scale), part_depth, by_parts);
                        if (d <= limit && (!fine || d / BINS == coarse)) {
                            atomicAdd(&bins[select(d / BINS, d % BINS, fine)], select(weight(d), 1u, counting));
                        }
                        if (by_parts) {
                            break;
                        }
                    }
                    if (by_parts) {
                        break;
                    }
                }
            }
            workgroupBarrier();
            var own = 0.0;
            let span = BINS / INVOCATIONS;
            for (var i = lane * span; i < (lane + 1u) * span; i++) {
                own += amount(i, coarse, counting, fine);
            }
            bin_sums[lane] = own;
            workgroupBarrier();
            var all = 0.0;
            for (var i = 0u; i < p.invocations; i++) {
                all += bin_sums[i];
            }
            if (!fine) {
                wanted = select(choice.top_p * all, f32(choice.top_k), counting);
            }
            // The first bin with which the target is reached; the last if it is never reached.
            var at = 0u;
            var before = 0.0;
            while (at < INVOCATIONS - 1u && before + bin_sums[at] < wanted) {
                before += bin_sums[at];
                at++;
            }
            at *= span;
            while (at < BINS - 1u && before + amount(at, coarse, counting, fine) < wanted) {
                before += amount(at, coarse, counting, fine);
                at++;
            }
            workgroupBarrier();
            if (fine) {
                limit = min(limit, coarse * BINS + at);
            } else {
                coarse = at;
                wanted -= before;
            }
        }

        best = -3.4e38;
        index = 0xffffffffu;
        if (choice.min_p > 0.0) {
            limit = min(limit, u32(clamp(-log(choice.min_p) * PER_UNIT, 0.0, f32(FINEST))));
        }
        for (var i = lane; i < p.parts; i += INVOCATIONS) {
            let draw = parts[2u * (row * p.parts + i) + 1u];
            if (free) {
                if (bitcast<f32>(draw.x) > best) {
                    best = bitcast<f32>(draw.x);
                    index = draw.y;
                }
            } else if (depth(bitcast<f32>(parts[2u * (row * p.parts + i)].x), highest, scale) <= limit) {
                for (var s = i; s < p.steps; s += p.parts) {
                    let x = {{ loaded(tried ~ "[row * p.steps + s]", tried_type) }};
                    for (var c = 0u; c < p.lanes; c++) {
                        let logit = x{{ "[c]" if lanes == 4 }};
                        let noisy = logit * scale + gumbel(choice.key, s * {{ lanes }}u + c);
                        if (depth(logit, highest, scale) <= limit && noisy > best) {
                            best = noisy;
                            index = s * {{ lanes }}u + c;
                        }
                    }
                }
            }
        }
        best_over_lanes(lane, best, index);
        token = select(token, shared_index[0], shared_index[0] < p.vocabulary);
    }
    if (lane == 0u) {
        let found = atomicLoad(&holds);
        let usable = found == CHOICE;
        tokens[row] = select(select({{ all_hidden }}, {{ unusable }}, (found & UNUSABLE) != 0u), i32(token), usable);
$$ if lanes == 4
        let x = {{ loaded("logits[row * p.steps + token / 4u]", type) }};
        let logit = x[token % 4u];
$$ else
        let logit = {{ loaded("logits[row * p.steps + token]", type) }};
$$ endif
        log_probabilities[row] = select(NAN, bitcast<u32>(logit - raw_highest - log(total)), usable);
    }
}
