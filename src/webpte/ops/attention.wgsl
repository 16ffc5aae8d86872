{$ include "kernel.wgsl" $}
{$ set lane = "f32" if lanes == 1 else "vec4<f32>" $}
{$ set q_type = type if lanes == 1 else "vec4<" ~ type ~ ">" $}
{$ set kv_type = cache if lanes == 1 else "vec4<" ~ cache ~ ">" $}
{$ set y_at = 4 if mask else 3 $}

@group(1) @binding(0) var<storage, read> q: array<{{ q_type }}>;
@group(1) @binding(1) var<storage, read> keys: array<{{ kv_type }}>;
@group(1) @binding(2) var<storage, read> values: array<{{ kv_type }}>;
$$ if mask
@group(1) @binding(3) var<storage, read> mask: array<u32>;
$$ endif
$$ if splits > 1
@group(1) @binding({{ y_at }}) var<storage, read_write> partial: array<vec4<f32>>;
$$ else
@group(1) @binding({{ y_at }}) var<storage, read_write> y: array<{{ q_type }}>;
$$ endif

// A mask is read as bits: WGSL need not know infinities, and minus infinity is what hides a key.
$$ if mask == "bool"
fn hides(i: u32) -> bool {
    return mask[i] == 0u;
}

fn bias(i: u32) -> f32 {
    return 0.0;
}
$$ elif mask == "half"
fn half_bits(i: u32) -> u32 {
    return (mask[i >> 1u] >> (16u * (i & 1u))) & 0xffffu;
}

fn hides(i: u32) -> bool {
    return half_bits(i) == 0xfc00u;
}

fn bias(i: u32) -> f32 {
    return unpack2x16float(half_bits(i)).x;
}
$$ elif mask == "float"
fn hides(i: u32) -> bool {
    return mask[i] == 0xff800000u;
}

fn bias(i: u32) -> f32 {
    return bitcast<f32>(mask[i]);
}
$$ endif

fn total(v: {{ lane }}) -> f32 {
$$ if lanes == 1
    return v;
$$ else
    return v.x + v.y + v.z + v.w;
$$ endif
}

// One invocation per query row{{ " and part of its keys" if splits > 1 }}, with a running softmax: scores are never
// stored. Steps count groups of {{ lanes }}.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let thread = thread_index(id, groups);
    if (thread >= p.threads) {
        return;
    }
    let i = thread / {{ splits }}u;
    let batch = i / (p.heads * p.seq);
$$ if heads_first
    let head = (i / p.seq) % p.heads;
    let token = i % p.seq;
$$ else
    let head = i % p.heads;
    let token = (i / p.heads) % p.seq;
$$ endif
    let first = batch * p.batch_rows + (head / p.group) * p.head_rows;
    let visible = u32(live(p.start)) + p.keys + token * p.causal;
$$ if mask
    let strides = p.mask_strides[0]; // batch, head, token, key
    let mask_row = batch * strides.x + head * strides.y + token * strides.z;
$$ endif

    var sum: array<{{ lane }}, {{ steps }}>;
    var highest = -3.4e38;
    var weight = 0.0;
    let part = (visible + {{ splits - 1 }}u) / {{ splits }}u;
    let begin = (thread % {{ splits }}u) * part;
    let end = min(begin + part, visible);
    for (var c = begin; c < end; c++) {
$$ if mask
        let m = mask_row + c * strides.w;
        if (hides(m)) {
            continue;
        }
$$ endif
        let row = first + c * p.key_rows;
        var product = {{ lane }}();
        for (var d = 0u; d < p.key_steps; d++) {
            product += {{ lane }}(q[i * p.key_steps + d]) * {{ lane }}(keys[row * p.key_steps + d]);
        }
$$ if mask
        let score = max(total(product) * p.scale + bias(m), -3.4e38);
$$ else
        let score = total(product) * p.scale;
$$ endif
        let top = max(highest, score);
        let keep = exp(highest - top);
        let add = exp(score - top);
        highest = top;
        weight = weight * keep + add;
        for (var d = 0u; d < p.value_steps; d++) {
            sum[d] = sum[d] * keep + {{ lane }}(values[row * p.value_steps + d]) * add;
        }
    }
$$ if splits > 1
    // What attention_merge.wgsl needs: the highest score, the weight relative to it, and the weighted sum.
    let at = thread * (p.value_steps + 1u);
    partial[at] = vec4<f32>(highest, weight, 0.0, 0.0);
    for (var d = 0u; d < p.value_steps; d++) {
        partial[at + 1u + d] = sum[d];
    }
$$ else
    // The highest score weighs 1, so less than that means that every key was hidden: the row is zero.
    for (var d = 0u; d < p.value_steps; d++) {
        y[i * p.value_steps + d] = {{ q_type }}(sum[d] / max(weight, 1.0));
    }
$$ endif
}
