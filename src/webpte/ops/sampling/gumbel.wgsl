// What a part of a row may hold: a logit nothing can be chosen by, and one of a token that can be chosen.
const UNUSABLE = 1u;
const CHOICE = 2u;
const HIDDEN = 0xff800000u;  // bits of minus infinity: a token that is masked

fn hash(v: u32) -> u32 {
    let state = v * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

fn key_of(row: u32) -> u32 {
    return hash(hash(hash(u32(live(p.seed))) ^ u32(live(p.step))) ^ row);
}

// Noise whose maximum over tokens falls on each with its probability: -log(-log(1 - t)) with t inside (0, 1).
fn gumbel_of(bits: u32) -> f32 {
    let t = min((f32(bits) + 0.5) / 4294967296.0, 0.99999994);  // the sum may round up to 2^32
    // Near 0 the inner logarithm would lose the digits of t, and by WGSL's rules might even be 0.
    let series = t * (1.0 + t * (0.5 + t * (0.33333334 + t * 0.25)));
    return -log(select(-log(1.0 - t), series, t < 0.015625));
}

fn gumbel(row_key: u32, token: u32) -> f32 {
    return gumbel_of(hash(row_key ^ token));
}

// Whether tokens are drawn, and from all there are.
fn draws_freely() -> bool {
    let top_k = u32(live(p.top_k));
    let all = (top_k == 0u || top_k >= p.vocabulary) && bitcast<f32>(live(p.top_p)) >= 1.0;
    return all && bitcast<f32>(live(p.temperature)) > 0.0;
}
