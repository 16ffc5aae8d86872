{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ set wide4 = type.endswith("x4") $}
{$ set lane_type = "vec4<f32>" if wide4 else "f32" $}
{$ set rows = ["x", "y", "z", "w"] $}

var<storage> q: {{ array_of(type) }};
var<storage> keys: {{ array_of(cache) }};
var<storage> values: {{ array_of(cache) }};
$$ if mask
var<storage> mask: array<u32>;
$$ endif
var<storage> y: {{ array_of(type) }};

const LOWEST = -3.4e38;
const HIDDEN = -3.402e38;  // a score below the lowest: the key is not there
const ACROSS = {{ across }}u;  // invocations that share four rows, first over keys, then over columns of values
const TILE = {{ tile }}u;  // keys that an invocation scores at a time
const KEYS = {{ across * tile }}u;

var<workgroup> tops: array<vec4<f32>, {{ across }}>;
var<workgroup> weights: array<vec4<f32>, {{ across * tile }}>;

{$ include "attention/cache_loads.wgsl" $}

$$ if mask
{$ include "attention/attention_mask.wgsl" $}
$$ endif

fn product(a: {{ lane_type }}, b: {{ lane_type }}) -> f32 {
    return {{ "dot(a, b)" if wide4 else "a * b" }};
}

// Attention of many tokens: every four rows of queries go over the keys in blocks. Scores live in registers, weights
// for the time of a block in shared memory; both are relative to the highest score so far.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,  // its index would be computed at every use by some drivers
) {
    let job = id.x + id.y * groups.x;  // (B, key head, rows)
    let busy = job * ACROSS < p.threads;
    let row_of_keys = job / p.row_blocks;  // (B, key head)
    let row_block = job - row_of_keys * p.row_blocks;
    let batch = row_of_keys / p.key_heads;
    let key_head = row_of_keys - batch * p.key_heads;
    let x = local.x;
    let first_row = row_block * 4u;
    let last_row = p.seq * p.group - 1u;
    // The rows of a key head are its query heads of the first token, then of the next.
    let r = min(first_row + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last_row));
    let token = r / p.group;
    let head = key_head * p.group + r - token * p.group;
$$ if heads_first
    let row = (batch * p.heads + head) * p.seq + token;
$$ else
    let row = (batch * p.seq + token) * p.heads + head;
$$ endif
    let first = batch * p.batch_rows + key_head * p.head_rows;  // row of the first key
    let start = u32(live(p.start)) + p.keys;
    let visible = start + token * p.causal;
    // The keys that the last token of the workgroup sees: uniform in the workgroup.
    let end = start + min(first_row + 3u, last_row) / p.group * p.causal;
    let query_at = row * p.key_steps;
$$ if mask
    let mask_at = batch * p.mask_strides[0].x + head * p.mask_strides[0].y + token * p.mask_strides[0].z;
$$ endif

    var top = vec4<f32>(LOWEST);
    var weight = vec4<f32>();
$$ for w in range(wide)
$$ for i in rows
    var sum_{{ i }}{{ w }} = {{ lane_type }}();
$$ endfor
$$ endfor
    for (var base = 0u; base < end; base += KEYS) {
        let count = min(end - base, KEYS);
$$ for t in range(tile)
        let c{{ t }} = base + min({{ t }}u * ACROSS + x, count - 1u);
        let key{{ t }} = (first + c{{ t }} * p.key_rows) * p.key_steps;
        var score{{ t }} = vec4<f32>();
$$ endfor
        for (var d = 0u; d < p.key_steps; d++) {
$$ for i in rows
            let q_{{ i }} = {{ loaded("q[query_at." ~ i ~ " + d]", type) }};
$$ endfor
$$ for t in range(tile)
            let k{{ t }} = load_key(key{{ t }}, d);
$$ for i in rows
            score{{ t }}.{{ i }} += product(q_{{ i }}, k{{ t }});
$$ endfor
$$ endfor
        }
        var found = vec4<f32>(HIDDEN);
$$ for t in range(tile)
        score{{ t }} *= p.scale;
$$ if mask
$$ for i in rows
        let m{{ t }}{{ i }} = mask_at.{{ i }} + c{{ t }} * p.mask_strides[0].w;
        let biased{{ t }}{{ i }} = score{{ t }}.{{ i }} + bias(m{{ t }}{{ i }});
        let limited{{ t }}{{ i }} = select(biased{{ t }}{{ i }}, LOWEST, biased{{ t }}{{ i }} < LOWEST);  // NaN stays
        score{{ t }}.{{ i }} = select(limited{{ t }}{{ i }}, HIDDEN, hides(m{{ t }}{{ i }}));
$$ endfor
$$ endif
        score{{ t }} = select(vec4<f32>(HIDDEN), score{{ t }}, vec4<u32>(base + {{ t }}u * ACROSS + x) < visible);
        found = max(found, score{{ t }});
$$ endfor
        tops[x] = found;
        workgroupBarrier();
        var higher = top;
        for (var i = 0u; i < p.across; i++) {
            higher = max(higher, tops[i]);
        }
        let keep = exp(top - higher);
        top = higher;
        weight *= keep;
$$ for w in range(wide)
$$ for i in rows
        sum_{{ i }}{{ w }} *= keep.{{ i }};
$$ endfor
$$ endfor
$$ for t in range(tile)
        let hidden{{ t }} = score{{ t }} < vec4<f32>(LOWEST);
        weights[{{ t }}u * ACROSS + x] = select(exp(score{{ t }} - top), vec4<f32>(), hidden{{ t }});
$$ endfor
        workgroupBarrier();
        for (var c = 0u; c < count; c++) {
            let added = weights[c];
            let first_value = (first + (base + c) * p.key_rows) * p.value_steps;
            weight += added;
$$ for w in range(wide)
            let value{{ w }} = load_value(first_value, min(x + {{ w * across }}u, p.value_steps - 1u));
$$ for i in rows
            sum_{{ i }}{{ w }} += added.{{ i }} * value{{ w }};
$$ endfor
$$ endfor
        }
    }

    // The highest score weighs 1, so less than that means that every key was hidden: the row is zero.
    let share = 1.0 / max(weight, vec4<f32>(1.0));
    let rows_here = select(0u, min(4u, last_row + 1u - min(first_row, last_row + 1u)), busy);
    for (var i = 0u; i < rows_here; i++) {
        let at = row[i] * p.value_steps + x;
$$ for w in range(wide)
        if (x + {{ w * across }}u < p.value_steps) {
            let upper = select(sum_x{{ w }} * share.x, sum_y{{ w }} * share.y, i == 1u);
            let lower = select(sum_z{{ w }} * share.z, sum_w{{ w }} * share.w, i == 3u);
            let out = select(upper, lower, i >= 2u);
            y[at + {{ w * across }}u] = {{ storable("out", type) }};
        }
$$ endfor
    }
}
