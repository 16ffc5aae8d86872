@group(0) @binding(0) var<storage, read> scores: array<f32>;  // (H, C)
@group(0) @binding(1) var<storage, read> v: array<vec4<f32>>;  // (C, KV, D)
@group(0) @binding(2) var<storage, read> context: array<u32>;  // how many rows of the caches are live
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // (H, D)

// Each invocation owns a head and four columns; every one takes the softmax for itself.
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= {{ H * D // 4 }}u) {
        return;
    }
    let head = id.x / {{ D // 4 }}u;
    let first = head * {{ C }}u;
    let column = head / {{ H // KV }}u * {{ D // 4 }}u + id.x % {{ D // 4 }}u;
    var largest = -3.0e38;
    for (var c = 0u; c < context[0]; c++) {
        largest = max(largest, scores[first + c]);
    }
    var total = 0.0;
    var sum = vec4<f32>();
    for (var c = 0u; c < context[0]; c++) {
        let weight = exp(scores[first + c] - largest);
        total += weight;
        sum += v[c * {{ KV * D // 4 }}u + column] * weight;
    }
    y[id.x] = sum / total;
}
