@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;  // (H, D)
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;  // (C, KV, D)
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;  // (C, KV, D)
@group(0) @binding(3) var<storage, read> context: array<u32>;  // how many rows of the caches are live
@group(0) @binding(4) var<storage, read_write> parts: array<vec4<f32>>;  // (H, splits, 1 + D / 4): largest and sum first

// Each invocation owns a head and one of {{ splits }} pieces of the context, and keeps a running softmax.
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= {{ H * splits }}u) {
        return;
    }
    let head = id.x / {{ splits }}u;
    let kv = head / {{ H // KV }}u;
    let size = (context[0] + {{ splits - 1 }}u) / {{ splits }}u;
    let start = (id.x % {{ splits }}u) * size;
    let end = min(start + size, context[0]);
    var query: array<vec4<f32>, {{ D // 4 }}>;
    var sum: array<vec4<f32>, {{ D // 4 }}>;
    for (var i = 0u; i < {{ D // 4 }}u; i++) {
        query[i] = q[head * {{ D // 4 }}u + i] * {{ D ** -0.5 }};
    }
    var largest = -3.0e38;
    var total = 0.0;
    for (var c = start; c < end; c++) {
        let at = (c * {{ KV }}u + kv) * {{ D // 4 }}u;
        var product = vec4<f32>();
        for (var i = 0u; i < {{ D // 4 }}u; i++) {
            product += query[i] * k[at + i];
        }
        let score = dot(product, vec4<f32>(1.0));
        let peak = max(largest, score);
        let fade = exp(largest - peak);
        let weight = exp(score - peak);
        total = total * fade + weight;
        largest = peak;
        for (var i = 0u; i < {{ D // 4 }}u; i++) {
            sum[i] = sum[i] * fade + v[at + i] * weight;
        }
    }
    parts[id.x * {{ 1 + D // 4 }}u] = vec4<f32>(largest, total, 0.0, 0.0);
    for (var i = 0u; i < {{ D // 4 }}u; i++) {
        parts[id.x * {{ 1 + D // 4 }}u + 1u + i] = sum[i];
    }
}
