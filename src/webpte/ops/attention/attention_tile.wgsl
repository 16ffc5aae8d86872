{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ set wide4 = type.endswith("x4") $}
{$ set lane_type = "vec4<f32>" if wide4 else "f32" $}
{$ set rows = ["x", "y", "z", "w"] $}
{$ set lanes = across * down $}
{$ set window, cap = window | default(0), cap | default("") $}
{$ set sinks = sinks | default("") $}
{$ set later = later is defined $}
{$ set score = "vec4<f32>" $}
{# Shared memory has rows of 8 elements and one that keeps rows from beginning at the same bank. An element of a row is
   mostly a constant, because naga bounds every other index. Of an invocation's keys, element s * tile + t is load s of
   key t; of its queries, element i * chunk + s is load s of row i. frugal: registers are scarce, so what a workgroup has in
   common lies in shared memory. Other devices have registers for that, or keep it once for a subgroup. #}
{$ set inner = 8 $}
{$ set key_rows = chunk * tile // inner $}
{$ set query_rows = chunk * 4 // inner $}
{$ set first_query = key_rows * across $}
{$ set stage_rows = first_query + query_rows * down $}
{$ set weight_rows = across * tile // inner $}
{$ set weights = "stage" if wide4 else "weights" $}
{$ set q_loads = (4 * down * chunk + lanes - 1) // lanes $}
{$ set partial_chunk = key_steps % chunk != 0 $}

var<storage> q: {{ array_of(type) }};
var<storage> keys: {{ array_of(cache) }};
var<storage> values: {{ array_of(cache) }};
$$ if mask
var<storage> mask: array<u32>;
$$ elif slots
var<storage> slot_mapping: array<{{ "vec4<i32>" if later else "vec2<i32>" }}>;  // slot and position of each token
$$ if sinks
var<storage> cosine: {{ array_of(sinks) }};
$$ endif
$$ endif
var<storage> y: {{ array_of(type) }};

const LOWEST = -3.4e38;
const HIDDEN = -3.402e38;  // a score below the lowest: the key is not there
const KEY_STEPS = {{ key_steps }}u;
const VALUE_STEPS = {{ value_steps }}u;
const ACROSS = {{ across }}u;  // invocations that share four rows, first over keys, then over columns of values
const ROWS = {{ 4 * down }}u;
const LANES = {{ lanes }}u;
const KEYS = {{ across * tile }}u;
const CHUNK = {{ chunk }}u;  // loads of a row that are staged at a time
const ROWS_STAGED = {{ lanes // chunk }}u;  // at a time

$$ if wide4
var<workgroup> stage: array<array<vec4<f32>, {{ inner + 1 }}>, {{ [stage_rows, weight_rows * down] | max }}>;  // then weights
$$ else
var<workgroup> stage: array<array<f32, {{ inner + 1 }}>, {{ stage_rows }}>;
var<workgroup> weights: array<array<vec4<f32>, {{ inner + 1 }}>, {{ weight_rows * down }}>;
$$ endif
var<workgroup> tops: array<array<vec4<f32>, {{ across + 1 }}>, {{ down }}>;  // one more, for the banks as well
// What is needed now and then, because registers are scarce:
var<workgroup> rows_here: u32;
var<workgroup> query_rows: array<array<u32, 4>, {{ down }}>;  // of each row, its number in the queries,
var<workgroup> visible: array<array<u32, 4>, {{ down }}>;  // and the keys that it sees
$$ if slots
var<workgroup> tokens: array<array<u32, 4>, {{ down }}>;
$$ if window and later
var<workgroup> later: array<array<u32, 4>, {{ down }}>;  // keys after its own that a row sees
$$ endif
$$ if frugal
var<workgroup> tokens_left: vec2<u32>;  // the first and the last
var<workgroup> first_of_head: u32;  // row of its first key in a slot,
var<workgroup> first: u32;  // and in the caches
$$ endif
$$ endif
$$ if frugal
var<workgroup> tops_before: array<vec4<f32>, {{ down }}>;
$$ endif
$$ if mask
var<workgroup> mask_rows: array<array<u32, 4>, {{ down }}>;
$$ endif

{$ include "attention/cache_loads.wgsl" $}

$$ if mask
{$ include "attention/attention_mask.wgsl" $}
$$ endif
{$ include "attention/capped_scores.wgsl" $}
{$ include "attention/head_sinks.wgsl" $}
$$ if slots
// Return the position of a token in its slot; -1 if it is idle.
fn position_of(token: u32) -> i32 {
    let place = slot_mapping[token];
    let position = place.y + live(p.start);
    let known = u32(place.x) < p.slots && u32(position) < p.capacity;  // negative numbers are large ones
    return select(-1, position, known);
}

$$ if later
// Return the last position that a token sees.
fn last_of(token: u32) -> i32 {
    let position = position_of(token);
    return select(position, min(position + max(slot_mapping[token].z, 0), i32(p.capacity) - 1), position >= 0);
}

$$ endif
$$ endif
// Stage load d of a row's query as its load `step` of the chunk; zero after the end of the row.
fn stage_query(row: u32, step: u32, d: u32) {
    let first = query_rows[row / 4u][row % 4u] * KEY_STEPS;
$$ if partial_chunk
    let at = first + min(d, KEY_STEPS - 1u);
    let query = select({{ lane_type }}(), {{ loaded("q[at]", type) }}, d < KEY_STEPS);
$$ else
    let query = {{ loaded("q[first + d]", type) }};
$$ endif
    let element = row % 4u * CHUNK + step;
    stage[{{ first_query }}u + element / {{ inner }}u * {{ down }}u + row / 4u][element % {{ inner }}u] = query;
}

{$ if wide4 $}
{$ include "attention/plus_product.wgsl" $}
{$ else $}
fn plus_product(sum: f32, a: f32, b: f32) -> f32 {
    return sum + a * b;
}
{$ endif $}

// Attention of many tokens. A workgroup has {{ 4 * down }} rows, which are tokens times query heads of a key head, and
// goes over the keys from the first on, KEYS at a time. An invocation has four rows: it scores {{ tile }} keys for them,
// then adds up columns of the values. Scores and sums are relative to the highest score of a row so far. A key that a
// row does not see changes nothing of that row, so its bits do not depend on the other rows.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,  // its index would be computed at every use by some drivers
) {
    let job = id.x + id.y * groups.x;  // (B, key head, rows)
    let busy = job * LANES < p.threads;
    let row_of_keys = job / p.row_blocks;  // (B, key head)
    let row_block = job - row_of_keys * p.row_blocks;
    let batch = row_of_keys / p.key_heads;
    let key_head = row_of_keys - batch * p.key_heads;
    let x = local.x % ACROSS;
    let four = local.x / ACROSS;
    // The rows of a key head are its query heads of the first token, then of the next.
    let first_row = row_block * ROWS;
    let last_row = p.seq * p.group - 1u;
    let r = min(first_row + local.x, last_row);
    let token = r / p.group{{ " + p.first_token" if slots }};
    let head = key_head * p.group + r % p.group;
$$ if not slots
    let first = batch * p.batch_rows + key_head * p.head_rows;  // row of the first key
    let start = u32(live(p.start)) + p.keys;
    // The keys that the last token of the workgroup sees: uniform in the workgroup.
    let end = start + min(first_row + ROWS - 1u, last_row) / p.group * p.causal;
$$ endif
    if (local.x == 0u) {
        rows_here = select(0u, min(ROWS, last_row + 1u - first_row), busy);
$$ if slots and frugal
        tokens_left = p.first_token + vec2<u32>(first_row, min(first_row + ROWS - 1u, last_row)) / p.group;
        first_of_head = key_head * p.head_rows;
$$ endif
    }
    if (local.x < ROWS) {
        query_rows[local.x / 4u][local.x % 4u] = {{ "(batch * p.heads + head) * p.seq + token" if heads_first else "(batch * p.seq + token) * p.heads + head" }};
$$ if slots
        tokens[local.x / 4u][local.x % 4u] = token;
$$ endif
$$ if mask
        mask_rows[local.x / 4u][local.x % 4u] = batch * p.mask_strides[0].x + head * p.mask_strides[0].y + token * p.mask_strides[0].z;
$$ endif
$$ if not slots
        visible[local.x / 4u][local.x % 4u] = start + token * p.causal;
$$ endif
    }
    workgroupBarrier();
$$ if slots
$$ if not frugal
    var left = p.first_token + vec2<u32>(first_row, min(first_row + ROWS - 1u, last_row)) / p.group;
$$ endif
    loop {  // the tokens of a slot after each other go together
$$ if frugal
    let left = workgroupUniformLoad(&tokens_left);
$$ endif
    if (left.x > left.y) {
        break;
    }
    let slot = slot_mapping[left.x].x;
    var next = left.x;
    var highest_position = -1;
$$ if window
    var lowest_position = 0xffffffffu;
$$ endif
    for (; next <= left.y && slot_mapping[next].x == slot; next++) {
        highest_position = max(highest_position, {{ "last_of" if later else "position_of" }}(next));
$$ if window
        lowest_position = min(lowest_position, u32(position_of(next)));  // -1 is the largest
$$ endif
    }
    let end = u32(highest_position + 1);
$$ if window
    let oldest_key = max(lowest_position + 1u, {{ window }}u) - {{ window }}u;
$$ endif
    let row = four * ACROSS + x;
$$ if frugal
    if (row == 0u) {
        tokens_left.x = next;
        first = u32(clamp(slot, 0, i32(p.slots) - 1)) * p.batch_rows + first_of_head;
    }
$$ else
    let first = u32(clamp(slot, 0, i32(p.slots) - 1)) * p.batch_rows + key_head * p.head_rows;  // row of the first key
    workgroupBarrier();
$$ endif
    if (row < ROWS) {
        let own_token = tokens[row / 4u][row % 4u];
        let takes_part = own_token >= left.x && slot_mapping[own_token].x == slot && row < rows_here;
        visible[row / 4u][row % 4u] = select(0u, u32({{ "last_of" if later else "position_of" }}(own_token) + 1), takes_part);
$$ if window and later
        later[row / 4u][row % 4u] = u32(last_of(own_token) - position_of(own_token));
$$ endif
    }
    workgroupBarrier();
$$ if not frugal
    left.x = next;
$$ endif
$$ endif

$$ if sinks
    let own_rows = min(first_row + 4u * four + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last_row));
    let heads = key_head * p.group + own_rows % p.group;
    let sinks_of_rows = vec4<f32>(sink_of(heads.x), sink_of(heads.y), sink_of(heads.z), sink_of(heads.w));
$$ endif
{$ set lowest = "sinks_of_rows" if sinks else "vec4<f32>(LOWEST)" $}
$$ if frugal
    if (x == 0u) {
        tops_before[four] = {{ lowest }};
    }
$$ else
    var top_before = {{ lowest }};
$$ endif
$$ if sinks
    var weight = select(vec4<f32>(), vec4<f32>(1.0), x == 0u);  // of the sinks, and of the keys that this invocation scores
$$ else
    var weight = vec4<f32>();  // of the keys that this invocation scores
$$ endif
$$ for w in range(wide)
$$ for i in rows
    var sum_{{ i }}{{ w }} = {{ lane_type }}();
$$ endfor
$$ endfor
    for (var base = {{ "oldest_key / KEYS * KEYS" if window else "0u" }}; base < end; base += KEYS) {
        let last = min(end - base, KEYS) - 1u;
$$ for t in range(tile)
        var score{{ t }} = vec4<f32>();
$$ endfor
        for (var d = 0u; d < p.key_steps; d += CHUNK) {  // a literal would be unrolled, which needs registers
            workgroupBarrier();
            // What this invocation stages of queries and keys.
            let staged_step = x % CHUNK;
            let staged_row = four * {{ across // chunk }}u + x / CHUNK;
            let staged = d + staged_step;
$$ if 4 * down * chunk < lanes
            if (staged_row < ROWS) {
                stage_query(staged_row, staged_step, staged);
            }
$$ elif frugal and q_loads > 1
            for (var row = staged_row; row < ROWS; row += ROWS_STAGED) {
                stage_query(row, staged_step, staged);
            }
$$ else
$$ for i in range(q_loads)
            stage_query(staged_row + {{ i }}u * ROWS_STAGED, staged_step, staged);
$$ endfor
$$ endif
$$ for i in range(tile * chunk // down)
            let c_{{ i }} = staged_row + {{ i }}u * ROWS_STAGED;
            let key_{{ i }} = load_key((first + (base + min(c_{{ i }}, last)) * p.key_rows) * KEY_STEPS, {{ "min(staged, KEY_STEPS - 1u)" if partial_chunk else "staged" }});
            let element_of_{{ i }} = staged_step * {{ tile }}u + c_{{ i }} / ACROSS;
            stage[element_of_{{ i }} / {{ inner }}u * ACROSS + c_{{ i }} % ACROSS][element_of_{{ i }} % {{ inner }}u] = key_{{ i }};
$$ endfor
            workgroupBarrier();
$$ for s in range(chunk)
$$ for t in range(tile)
            let k{{ s }}_{{ t }} = stage[{{ (s * tile + t) // inner * across }}u + x][{{ (s * tile + t) % inner }}];
$$ endfor
$$ for i in rows
$$ set element = loop.index0 * chunk + s
            let q{{ s }}_{{ i }} = stage[{{ first_query + element // inner * down }}u + four][{{ element % inner }}];
$$ for t in range(tile)
            score{{ t }}.{{ i }} = plus_product(score{{ t }}.{{ i }}, q{{ s }}_{{ i }}, k{{ s }}_{{ t }});
$$ endfor
$$ endfor
$$ endfor
        }
        let is_visible = vec4<u32>(
$$ for i in rows
            visible[four][{{ loop.index0 }}],
$$ endfor
        );
$$ if window
$$ if later
        let up_to_own = is_visible - min(is_visible, vec4<u32>(
$$ for i in rows
            later[four][{{ loop.index0 }}],
$$ endfor
        ));
$$ endif
{$ set own_visible = "up_to_own" if later else "is_visible" $}
        let oldest = {{ own_visible }} - min({{ own_visible }}, vec4<u32>({{ window }}u));
$$ endif
        var highest = vec4<f32>(HIDDEN);
$$ for t in range(tile)
        score{{ t }} *= p.scale;
$$ if cap
        score{{ t }} = capped_scores(score{{ t }});
$$ endif
$$ if mask
        let c{{ t }} = base + min({{ t * across }}u + x, last);
$$ for i in rows
        let m{{ t }}{{ i }} = mask_rows[four][{{ loop.index0 }}] + c{{ t }} * p.mask_strides[0].w;
        let biased{{ t }}{{ i }} = score{{ t }}.{{ i }} + bias(m{{ t }}{{ i }});
        let limited{{ t }}{{ i }} = select(biased{{ t }}{{ i }}, LOWEST, biased{{ t }}{{ i }} < LOWEST);  // NaN stays
        score{{ t }}.{{ i }} = select(limited{{ t }}{{ i }}, HIDDEN, hides(m{{ t }}{{ i }}));
$$ endfor
$$ endif
$$ if window
        score{{ t }} = select(vec4<f32>(HIDDEN), score{{ t }}, vec4<u32>(base + {{ t * across }}u + x) >= oldest);
$$ endif
        score{{ t }} = select(vec4<f32>(HIDDEN), score{{ t }}, vec4<u32>(base + {{ t * across }}u + x) < is_visible);
        highest = max(highest, score{{ t }});
$$ endfor
$$ if frugal
        let top_before = tops_before[four];
$$ endif
        tops[four][x] = highest;
        workgroupBarrier();
        var top = top_before;
$$ for i in range(across)
        top = max(top, tops[four][{{ i }}]);
$$ endfor
        let keep = exp(top_before - top);
$$ if frugal
        if (x == 0u) {
            tops_before[four] = top;
        }
$$ else
        top_before = top;
$$ endif
        weight *= keep;
$$ for w in range(wide)
$$ for i in rows
        sum_{{ i }}{{ w }} *= keep.{{ i }};
$$ endfor
$$ endfor
$$ for t in range(tile)
        let added{{ t }} = select(exp(score{{ t }} - top), vec4<f32>(), score{{ t }} < vec4<f32>(LOWEST));
        weight += added{{ t }};
        {{ weights }}[({{ t * across }}u + x) / {{ inner }}u * {{ down }}u + four][x % {{ inner }}u] = added{{ t }};
$$ endfor
        workgroupBarrier();
        for (var c = 0u; c <= last; c += {{ inner }}u) {
            let added = c / {{ inner }}u * {{ down }}u + four;
$$ for u in range(inner)
            let added_{{ u }} = {{ weights }}[added][{{ u }}];
            let value_{{ u }} = (first + (base + min(c + {{ u }}u, last)) * p.key_rows) * VALUE_STEPS;
$$ for w in range(wide)
            let v_{{ u }}{{ w }} = load_value(value_{{ u }}, min(x + {{ w * across }}u, VALUE_STEPS - 1u));
$$ for i in rows
            sum_{{ i }}{{ w }} += added_{{ u }}.{{ i }} * v_{{ u }}{{ w }};
$$ endfor
$$ endfor
$$ endfor
        }
    }

    workgroupBarrier();
    tops[four][x] = weight;
    workgroupBarrier();
    var whole = vec4<f32>();
$$ for i in range(across)
    whole += tops[four][{{ i }}];
$$ endfor
    // The highest score weighs 1, so less than that means that every key was hidden: the row is zero.
    let share = 1.0 / max(whole, vec4<f32>(1.0));
$$ for i in rows
    if ({{ "visible[four][" ~ loop.index0 ~ "] > 0u" if slots else "four * 4u + " ~ loop.index0 ~ "u < rows_here" }}) {
        let at_{{ i }} = query_rows[four][{{ loop.index0 }}] * VALUE_STEPS + x;
$$ for w in range(wide)
        if (x + {{ w * across }}u < VALUE_STEPS) {
            let out_{{ w }} = sum_{{ i }}{{ w }} * share.{{ i }};
            y[at_{{ i }} + {{ w * across }}u] = {{ storable("out_" ~ w, type) }};
        }
$$ endfor
    }
$$ endfor
$$ if slots
    }
$$ endif
}
