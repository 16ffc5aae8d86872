@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;  // (H, splits, 1 + D / 4)
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;  // (H, D)

// Each invocation owns a head and four columns.
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= {{ H * D // 4 }}u) {
        return;
    }
    let first = id.x / {{ D // 4 }}u * {{ splits * (1 + D // 4) }}u;
    var largest = -3.0e38;
    for (var s = 0u; s < {{ splits }}u; s++) {
        largest = max(largest, parts[first + s * {{ 1 + D // 4 }}u].x);
    }
    var total = 0.0;
    var sum = vec4<f32>();
    for (var s = 0u; s < {{ splits }}u; s++) {
        let at = first + s * {{ 1 + D // 4 }}u;
        let weight = exp(parts[at].x - largest);
        total += parts[at].y * weight;
        sum += parts[at + 1u + id.x % {{ D // 4 }}u] * weight;
    }
    y[id.x] = sum / total;
}
