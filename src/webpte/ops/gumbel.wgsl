fn hash(v: u32) -> u32 {
    let state = v * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

fn key_of(row: u32) -> u32 {
    return hash(hash(hash(u32(live(p.seed))) ^ u32(live(p.step))) ^ row);
}

// Noise whose maximum over tokens falls on each with its probability.
fn gumbel(row_key: u32, token: u32) -> f32 {
    let uniform_draw = (f32(hash(row_key ^ token) >> 8u) + 0.5) / 16777216.0;
    return -log(-log(uniform_draw));
}

// Whether tokens are drawn, and from all there are.
fn draws_freely() -> bool {
    let top_k = u32(live(p.top_k));
    let all = (top_k == 0u || top_k >= p.vocabulary) && bitcast<f32>(live(p.top_p)) >= 1.0;
    return all && bitcast<f32>(live(p.temperature)) > 0.0;
}
