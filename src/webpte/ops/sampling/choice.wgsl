// Flags of a part of a row: it has a logit that is NaN or infinite, or one of a token that can be chosen.
const UNUSABLE = 1u;
const CHOICE = 2u;
const COLUMNS = {{ columns }}u;  // of the settings, with which `choices` begins
const HIDDEN = 0xff800000u;  // bits of minus infinity: a token that is masked

fn hash(v: u32) -> u32 {
    let state = v * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

// How the token of a row is chosen. All bits are safe: invalid settings choose some token.
struct Choice {
    temperature: f32,  // 0 takes the most probable token
    scale: f32,
    top_k: u32,  // 0: no limit
    top_p: f32,
    min_p: f32,
    key: u32,  // of the noise: it does not depend on the row, so a sequence may be in any row
}

fn choice_of(row: u32) -> Choice {
    let at = row * COLUMNS;
    let temperature = bitcast<f32>(choices[at]);
    let step = u32(choices[at + 5u] + live(p.advance));
    return Choice(
        temperature,
        1.0 / max(temperature, 1e-30),
        u32(choices[at + 1u]),
        bitcast<f32>(choices[at + 2u]),
        bitcast<f32>(choices[at + 3u]),
        hash(hash(hash(u32(choices[at + 4u])) ^ step)),
    );
}

// Noise whose maximum over tokens falls on each with its probability: -log(-log(1 - t)) with t inside (0, 1).
fn gumbel_of(bits: u32) -> f32 {
    let t = min((f32(bits) + 0.5) / 4294967296.0, 0.99999994);  // the sum may round up to 2^32
    // Near 0 the inner logarithm would lose the digits of t, and by WGSL's rules might even be 0.
    let series = t * (1.0 + t * (0.5 + t * (0.33333334 + t * 0.25)));
    return -log(select(-log(1.0 - t), series, t < 0.015625));
}

fn gumbel(key: u32, token: u32) -> f32 {
    return gumbel_of(hash(key ^ token));
}

fn takes_any_rank(choice: Choice) -> bool {
    return choice.top_k == 0u || choice.top_k >= p.vocabulary;
}

// Whether tokens are drawn, and from all there are.
fn draws_freely(choice: Choice) -> bool {
    let all = takes_any_rank(choice) && choice.top_p >= 1.0 && choice.min_p <= 0.0;
    return all && choice.temperature > 0.0;
}
