{$ include "kernel.wgsl" $}
{$ set element = type if lanes == 1 else "vec4<" ~ type ~ ">" $}
{$ set wide = "f32" if lanes == 1 else "vec4<f32>" $}

@group(1) @binding(0) var<storage, read> q: array<{{ element }}>;
@group(1) @binding(1) var<storage, read> keys: array<{{ element }}>;
@group(1) @binding(2) var<storage, read> values: array<{{ element }}>;
@group(1) @binding(3) var<storage, read_write> y: array<{{ element }}>;

fn total(v: {{ wide }}) -> f32 {
$$ if lanes == 1
    return v;
$$ else
    return v.x + v.y + v.z + v.w;
$$ endif
}

// One invocation per (batch, token, query head), with a running softmax: scores are never stored.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let head = i % p.heads;
    let token = (i / p.heads) % p.seq;
    let batch = i / (p.heads * p.seq);
    let kv_head = head / (p.heads / p.kv_heads);
    let visible = u32(live(p.start)) + token + 1u;

    var query: array<{{ wide }}, {{ steps }}>;
    var sum: array<{{ wide }}, {{ steps }}>;
    for (var d = 0u; d < {{ steps }}u; d++) {
        query[d] = {{ wide }}(q[i * {{ steps }}u + d]) * p.scale;
    }
    var highest = -3.4e38;
    var weight = 0.0;
    for (var c = 0u; c < visible; c++) {
        let at = ((batch * p.capacity + c) * p.kv_heads + kv_head) * {{ steps }}u;
        var product = {{ wide }}();
        for (var d = 0u; d < {{ steps }}u; d++) {
            product += query[d] * {{ wide }}(keys[at + d]);
        }
        let score = total(product);
        let top = max(highest, score);
        let keep = exp(highest - top);
        let add = exp(score - top);
        highest = top;
        weight = weight * keep + add;
        for (var d = 0u; d < {{ steps }}u; d++) {
            sum[d] = sum[d] * keep + {{ wide }}(values[at + d]) * add;
        }
    }
    for (var d = 0u; d < {{ steps }}u; d++) {
        y[i * {{ steps }}u + d] = {{ element }}(sum[d] / weight);
    }
}
