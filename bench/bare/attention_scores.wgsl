@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;  // (H, D)
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;  // (C, KV, D)
@group(0) @binding(2) var<storage, read> context: array<u32>;  // how many rows of the caches are live
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;  // (H, C)

// {{ stride }} invocations for each key head stride over the context, for all heads that share it.
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let kv = id.x / {{ stride }}u;
    for (var c = id.x % {{ stride }}u; c < context[0]; c += {{ stride }}u) {
        let at = (c * {{ KV }}u + kv) * {{ D // 4 }}u;
$$ for h in range(H // KV)
        var sum{{ h }} = vec4<f32>();
$$ endfor
        for (var i = 0u; i < {{ D // 4 }}u; i++) {
            let key = k[at + i];
$$ for h in range(H // KV)
            sum{{ h }} += key * q[(kv * {{ H // KV }}u + {{ h }}u) * {{ D // 4 }}u + i];
$$ endfor
        }
$$ for h in range(H // KV)
        scores[(kv * {{ H // KV }}u + {{ h }}u) * {{ C }}u + c] = dot(sum{{ h }}, vec4<f32>({{ D ** -0.5 }}));
$$ endfor
    }
}
