{$ set heads = H // KV $}
{$ set pieces = D // 32 $}
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;  // (H, D)
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;  // (C, KV, D)
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;  // (C, KV, D)
@group(0) @binding(3) var<storage, read> context: array<u32>;  // how many rows of the caches are live
@group(0) @binding(4) var<storage, read_write> parts: array<vec4<f32>>;  // (H, splits, 1 + D / 4): largest and sum first

// A subgroup of 8 owns the {{ heads }} heads that share a key head, and one of {{ splits }} pieces of the context.
// Eight rows at a time: lanes are rows for the scores, and columns for the sums. A bound the compiler does not know keeps
// the inner loops from being unrolled beyond the processor's instruction caches.
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
    let eight = min(8u, arrayLength(&q));
    let kv = group.x / {{ splits }}u;
    let split = group.x % {{ splits }}u;
    let size = (context[0] + {{ 8 * splits - 1 }}u) / {{ 8 * splits }}u * 8u;
    let start = split * size;
    let end = min(start + size, context[0]);
$$ for h in range(heads)
    var largest{{ h }} = -3.0e38;
    var total{{ h }} = 0.0;
$$ for p in range(pieces)
    let q{{ h }}_{{ p }} = q[(kv * {{ heads }}u + {{ h }}u) * {{ D // 4 }}u + {{ 8 * p }}u + lane] * {{ D ** -0.5 }};
    var sum{{ h }}_{{ p }} = vec4<f32>();
$$ endfor
$$ endfor
    for (var c = start; c < end; c += 8u) {
        let key = (min(c + lane, end - 1u) * {{ KV }}u + kv) * {{ D // 4 }}u;
$$ for h in range(heads)
        var score{{ h }} = 0.0;
$$ endfor
        for (var i = 0u; i < eight; i++) {
$$ for p in range(pieces)
            let key{{ p }} = k[key + {{ 8 * p }}u + i];
$$ for h in range(heads)
            score{{ h }} += dot(key{{ p }}, subgroupShuffle(q{{ h }}_{{ p }}, i));
$$ endfor
$$ endfor
        }
        let live = c + lane < end;
$$ for h in range(heads)
        let peak{{ h }} = max(largest{{ h }}, subgroupMax(score{{ h }}));
        let fade{{ h }} = exp(largest{{ h }} - peak{{ h }});
        let weight{{ h }} = select(0.0, exp(score{{ h }} - peak{{ h }}), live);
        total{{ h }} = total{{ h }} * fade{{ h }} + weight{{ h }};
        largest{{ h }} = peak{{ h }};
$$ for p in range(pieces)
        sum{{ h }}_{{ p }} *= fade{{ h }};
$$ endfor
$$ endfor
        for (var i = 0u; i < eight; i++) {
            let row = (min(c + i, end - 1u) * {{ KV }}u + kv) * {{ D // 4 }}u + lane;
$$ for p in range(pieces)
            let value{{ p }} = v[row + {{ 8 * p }}u];
$$ for h in range(heads)
            sum{{ h }}_{{ p }} += value{{ p }} * subgroupShuffle(weight{{ h }}, i);
$$ endfor
$$ endfor
        }
    }
$$ for h in range(heads)
    let all{{ h }} = subgroupAdd(total{{ h }});
    let at{{ h }} = ((kv * {{ heads }}u + {{ h }}u) * {{ splits }}u + split) * {{ 1 + D // 4 }}u;
    if (lane == 0u) {
        parts[at{{ h }}] = vec4<f32>(largest{{ h }}, all{{ h }}, 0.0, 0.0);
    }
$$ for p in range(pieces)
    parts[at{{ h }} + {{ 1 + 8 * p }}u + lane] = sum{{ h }}_{{ p }};
$$ endfor
$$ endfor
}
