{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> logits: array<f32>;  // (R, E)
$$ if biased
var<storage> bias: array<f32>;  // (E)
$$ endif
var<storage> ids: array<i32>;  // (R, chosen)
var<storage> scores: array<f32>;

$$ if scoring == "sigmoid"
fn score(logit: f32) -> f32 {
    return 1.0 / (1.0 + exp(-select(logit, -80.0, logit < -80.0)));
}

$$ endif
// An integer that is larger for a larger score, the largest for NaN: every expert has one place.
fn rank_key(at: u32) -> u32 {
$$ if scoring == "sigmoid"
    let value = score(logits[at]){{ " + bias[at % p.experts]" if biased }};
$$ elif biased
    let value = exp(logits[at] - highest(at / p.experts)) / total(at / p.experts) + bias[at % p.experts];
$$ else
    let value = logits[at];  // in the order of the scores
$$ endif
    let bits = bitcast<u32>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0xffffffffu;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

$$ if scoring == "softmax"
fn highest(row: u32) -> f32 {
    var result = logits[row * p.experts];
    for (var e = 1u; e < p.experts; e++) {
        result = max(result, logits[row * p.experts + e]);
    }
    return result;
}

fn total(row: u32) -> f32 {
    let largest = highest(row);
    var result = 0.0;
    for (var e = 0u; e < p.experts; e++) {
        result += exp(logits[row * p.experts + e] - largest);
    }
    return result;
}

$$ endif
// One invocation per row and expert: it counts the experts with a higher score, and of equal ones those before.
$$ call per_thread()
    let expert = i % p.experts;
    let row = i / p.experts;
    let own = rank_key(i);
    var rank = 0u;
    for (var e = 0u; e < p.experts; e++) {
        let other = rank_key(row * p.experts + e);
        rank += u32(other > own || (other == own && e < expert));
    }
    if (rank < p.chosen) {
        ids[row * p.chosen + rank] = i32(expert);
$$ if scoring == "sigmoid"
        scores[row * p.chosen + rank] = score(logits[i]);
$$ else
        scores[row * p.chosen + rank] = exp(logits[i] - highest(row)) / total(row);
$$ endif
    }
$$ endcall
