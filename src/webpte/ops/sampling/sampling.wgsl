{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ include "sampling/choice.wgsl" $}
{$ include "lanes.wgsl" $}
{$ set number, largest = "f32", True $}
{$ include "best.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded $}
{$ from "main.wgsl" import per_row $}
{$ set width = 4 if type.endswith("x4") else 1 $}

{$ set group = [lanes, 16] | min $}
{$ set source = "edited" if edited else "logits" $}
{$ set source_type = type if not edited else "f32x4" if width == 4 else "f32" $}

var<storage> logits: {{ array_of(type) }};
var<storage> choices: array<i32>;
var<storage> parts: array<vec4<u32>>;
$$ if edited
var<storage> edited: {{ array_of(source_type) }};
$$ endif
var<storage> tokens: array<i32>;
var<storage> log_probabilities: array<u32>;  // bits: it may be NaN

const LANES = {{ lanes }}u;
const GROUP = {{ group }}u;
const BINS = 2048u;  // each divided into as many finer bins
const FINEST = 4194303u;  // the last finer bin
const PER_UNIT = 131072.0;  // finer bins in a unit of logit / temperature: 32 units are distinguished
const COARSE_PER_UNIT = 64.0;
const NAN = 0x7fc00000u;

var<workgroup> bins: array<atomic<u32>, 2048>;
var<workgroup> bin_sums: array<f32, {{ lanes }}>;  // by invocation,
var<workgroup> group_sums: array<f32, {{ lanes // group }}>;  // and by {{ group }} of them
var<workgroup> holds: atomic<u32>;
var<workgroup> round_here: u32;

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
$$ call per_row(subgroups)
    let choice = choice_of(row);
    let scale = choice.scale;
    // The rounds have barriers. To FXC, a value that loops of an invocation use differs between invocations after them: so
    // what decides about a round is read before all loops, and `round_here` is the round in these.
    let any_rank = takes_any_rank(choice);
    let beyond_parts = choice.top_k > p.parts;

    if (lane == 0u) {
        atomicStore(&holds, 0u);
    }
    workgroupBarrier();
    var best = -3.4e38;
    var index = 0xffffffffu;
    for (var i = lane; i < p.parts; i += LANES) {
        let part = parts[2u * (row * p.parts + i)];
        let found = bitcast<f32>(part.x);
        if (found > best || (found == best && part.z < index)) {
            best = found;
            index = part.z;
        }
        atomicOr(&holds, part.w);
    }
    let first_best = best_over_lanes(lane, key_of(best), index);
    let highest = value_of(first_best.x);
    var token = min(first_best.y, p.vocabulary - 1u);
$$ if edited
    best = -3.4e38;
    for (var i = lane; i < p.parts; i += LANES) {
        best = max(best, bitcast<f32>(parts[2u * (row * p.parts + i) + 1u].z));
    }
    let raw_highest = highest_over_lanes(lane, best);
$$ else
    let raw_highest = highest;
$$ endif
    var sum = 0.0;
    for (var i = lane; i < p.parts; i += LANES) {
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
            let unlimited = any_rank || (round < 2u && beyond_parts);
            if (select(choice.top_p >= 1.0, unlimited, round < 4u)) {
                continue;
            }
            if (lane == 0u) {
                round_here = round;
            }
            for (var i = lane; i < BINS; i += LANES) {
                atomicStore(&bins[i], 0u);
            }
            workgroupBarrier();
            let counting = round_here < 4u;
            let by_parts = round_here < 2u;
            let fine = round_here % 2u == 1u;
            for (var i = lane; i < p.parts; i += LANES) {
                let part_depth = depth(bitcast<f32>(parts[2u * (row * p.parts + i)].x), highest, scale);
                let above = fine && part_depth / BINS > coarse;  // none of it is in the bin that is looked into
                let beyond = above || part_depth > limit || (!counting && part_depth == FINEST);
                for (var s = select(i, p.steps, beyond); s < p.steps; s += p.parts) {
                    let x = {{ loaded(source ~ "[row * p.steps + s]", source_type) }};
                    for (var c = 0u; c < p.width; c++) {
                        let d = select(depth(x{{ "[c]" if width == 4 }}, highest, scale), part_depth, by_parts);
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
            let span = BINS / LANES;
            for (var i = lane * span; i < (lane + 1u) * span; i++) {
                own += amount(i, coarse, counting, fine);
            }
            bin_sums[lane] = own;
            workgroupBarrier();
            if (lane < LANES / GROUP) {
                var of_group = 0.0;
                for (var i = lane * GROUP; i < (lane + 1u) * GROUP; i++) {
                    of_group += bin_sums[i];
                }
                group_sums[lane] = of_group;
            }
            workgroupBarrier();
            var all = 0.0;
            for (var i = 0u; i < p.lanes / GROUP; i++) {
                all += group_sums[i];
            }
            if (!fine) {
                wanted = select(choice.top_p * all, f32(choice.top_k), counting);
            }
            // The first bin with which the target is reached; the last if it is never reached.
            var at = 0u;
            var before = 0.0;
            while (at < LANES / GROUP - 1u && before + group_sums[at] < wanted) {
                before += group_sums[at];
                at++;
            }
            at *= GROUP;
            while (at < LANES - 1u && before + bin_sums[at] < wanted) {
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
        for (var i = lane; i < p.parts; i += LANES) {
            let draw = parts[2u * (row * p.parts + i) + 1u];
            if (free) {
                if (bitcast<f32>(draw.x) > best) {
                    best = bitcast<f32>(draw.x);
                    index = draw.y;
                }
            } else if (depth(bitcast<f32>(parts[2u * (row * p.parts + i)].x), highest, scale) <= limit) {
                for (var s = i; s < p.steps; s += p.parts) {
                    let x = {{ loaded(source ~ "[row * p.steps + s]", source_type) }};
                    for (var c = 0u; c < p.width; c++) {
                        let logit = x{{ "[c]" if width == 4 }};
                        let noisy = logit * scale + gumbel(choice.key, s * {{ width }}u + c);
                        if (depth(logit, highest, scale) <= limit && noisy > best) {
                            best = noisy;
                            index = s * {{ width }}u + c;
                        }
                    }
                }
            }
        }
        let drawn = best_over_lanes(lane, key_of(best), index).y;
        token = select(token, drawn, drawn < p.vocabulary);
    }
    if (lane == 0u) {
        let found = atomicLoad(&holds);
        let usable = found == CHOICE;
        tokens[row] = select(select({{ all_hidden }}, {{ unusable }}, (found & UNUSABLE) != 0u), i32(token), usable);
$$ if width == 4
        let x = {{ loaded("logits[row * p.steps + token / 4u]", type) }};
        let logit = x[token % 4u];
$$ else
        let logit = {{ loaded("logits[row * p.steps + token]", type) }};
$$ endif
        log_probabilities[row] = select(NAN, bitcast<u32>(logit - raw_highest - log(total)), usable);
    }
$$ endcall
