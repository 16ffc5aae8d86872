{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ include "attention/rotate.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ from "attention/rotate.wgsl" import angles, rotated $}
{$ set rows = lanes $}
{$ set window, cap, norm_eps = window | default(0), cap | default(""), norm_eps | default("") $}
{$ set sinks = sinks | default("") $}
{$ set normed = ["q", "k"] $}
{$ set later = later is defined $}
{$ set query_norm, key_norm = ("p.norms", "p.table_loads + p.norms") if norm_eps else ("", "") $}
{$ set score = "vec4<f32>" $}
{$ set fours = (rows + 3) // 4 $}
{# The variables that attention_subgroup.wgsl reads: #}
{$ set causal = true $}
{$ set own_query = "queries[lane]" $}
{$ set pieces = (key_steps + lanes - 1) // lanes $}
{$ set sine = "cosine[p.table_loads + entry]" $}
{# With `angle_row`, rotary tables have a row for each token of the batch from there on. #}
{$ macro angle_of(token, position) -$}
{{ token ~ " + " ~ angle_row ~ "u" if angle_row is defined else "u32(max(" ~ position ~ ", 0))" }}
{$- endmacro $}

var<storage> q: {{ array_of(type) }};
var<storage> k: {{ array_of(type) }};
var<storage> v: {{ array_of(type) }};
$$ if rotary
var<storage> cosine: {{ array_of(table) }};
$$ endif
var<storage> slot_mapping: array<{{ "vec4<i32>" if later else "vec2<i32>" }}>;  // slot and position of each token
var<storage> keys: {{ array_of(cache) }};
var<storage> values: {{ array_of(cache) }};
$$ if split
var<storage> partial: array<vec4<f32>>;
$$ else
var<storage> y: {{ array_of(type) }};
$$ endif

const LOWEST = -3.4e38;
const LANES = {{ lanes }}u;
const TILE = {{ tile }}u;
const KEY_STEPS = {{ key_steps }}u;

var<workgroup> queries: array<array<vec4<f32>, {{ key_steps }}>, {{ rows }}>;

$$ if norm_eps
var<workgroup> factors: array<f32, {{ rows }}>;
$$ endif
{$ include "attention/cache_loads.wgsl" $}

{$ include "attention/capped_scores.wgsl" $}
{$ include "attention/head_norms.wgsl" $}
{$ include "attention/head_sinks.wgsl" $}
// Return the position of a token in its slot; -1 if it is idle.
fn position_of(token: u32) -> i32 {
    let place = slot_mapping[token];
    let position = place.y + live(p.start);
    let known = u32(place.x) < p.slots && u32(position) < p.capacity;  // negative numbers are large ones
    return select(-1, position, known);
}

$$ if later
// Return the end of the cached keys that a token sees. It passes over its own, which is added at the end.
fn end_of(token: u32) -> i32 {
    let position = position_of(token);
    let more = slot_mapping[token].z;
    return select(position, min(position + more + 1, i32(p.capacity)), more > 0);
}

$$ endif
// Attention of tokens that follow each other, mostly of one slot: a subgroup has as many rows, which are tokens times
// query heads of a key head, as invocations. All is added up as attention_token.wgsl does it for each, where keys that a
// row does not see weigh nothing: the bits are the same.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let job = id.x + id.y * groups.x;  // (key head, block, split)
    let busy = job * LANES < p.threads;
    let part = job / p.splits;
    let split = job - part * p.splits;
    let key_head = min(part / p.row_blocks, p.key_heads - 1u);
    let block = part % p.row_blocks;
    let last_row = (p.rows - p.first_row) * p.group - 1u;
    let r = min(block * {{ rows }}u + lane, last_row);
    let token = p.first_row + r / p.group;
    let row = token * p.heads + key_head * p.group + r % p.group;
    let own_position = position_of(token);

$$ if norm_eps
    factors[lane] = query_factor(row);
    let own_factor = key_factor(token * p.key_heads + key_head);
    workgroupBarrier();
$$ endif
    for (var i = lane; i < {{ rows }}u * KEY_STEPS; i += LANES) {
        let d = i % KEY_STEPS;
        let other = min(block * {{ rows }}u + i / KEY_STEPS, last_row);
        let other_token = p.first_row + other / p.group;
        let other_row = other_token * p.heads + key_head * p.group + other % p.group;
{{ angles(rotary, table, angle_of("other_token", "position_of(other_token)"), sine) }}
        queries[i / KEY_STEPS][d] = ({{ rotated(rotary, "q", "other_row", type, query_norm) }}){{ " * factors[i / KEY_STEPS]" if norm_eps }} * p.scale;
    }
    workgroupBarrier();
    var own_score = 0.0;
    for (var d = 0u; d < p.key_steps; d++) {
{{ angles(rotary, table, angle_of("token", "own_position"), sine) }}
$$ if norm_eps
        let own_key = ({{ rotated(rotary, "k", "(token * p.key_heads + key_head)", type, key_norm) }}) * own_factor;
$$ else
        let own_key = {{ rotated(rotary, "k", "(token * p.key_heads + key_head)", type) }};
$$ endif
        own_score += dot(queries[lane][d], own_key);
    }

$$ if cap
    own_score = capped_score(own_score);
$$ endif
$$ if sinks
    let sink = sink_of(row % p.heads);
    let own_top = max(own_score, sink);
    let own_share = exp(own_score - own_top);
    let own_whole = own_share + exp(sink - own_top);
$$ endif
$$ if not window
    let begin = split * TILE * LANES;
$$ endif
    let stride = p.splits * TILE * LANES;
    let first_token = p.first_row + block * {{ rows }}u / p.group;
    let last_token = p.first_row + min(block * {{ rows }}u + {{ rows - 1 }}u, last_row) / p.group;
    for (var start = first_token; start <= last_token; start++) {
        let slot = slot_mapping[start].x;
        if (start > first_token && slot_mapping[start - 1u].x == slot) {
            continue;  // it went with the one before
        }
        var highest_position = 0;
$$ if window
        var lowest_position = 0xffffffffu;
$$ endif
        for (var t = start; t <= last_token && slot_mapping[t].x == slot; t++) {
            highest_position = max(highest_position, {{ "end_of" if later else "position_of" }}(t));
$$ if window
            lowest_position = min(lowest_position, u32(position_of(t)));  // -1 is the largest
$$ endif
        }
        let end = u32(highest_position);
$$ if window
        let oldest_key = max(lowest_position + 1u, {{ window }}u) - {{ window }}u;
        let begin = split * TILE * LANES + (oldest_key + stride - (split + 1u) * TILE * LANES) / stride * stride;
$$ endif
        let first = u32(clamp(slot, 0, i32(p.slots) - 1)) * p.batch_rows + key_head * p.head_rows;  // row of the first key
        let takes_part = token >= start && slot_mapping[token].x == slot && own_position >= 0;
        let own_visible = select(0u, u32(max({{ "end_of(token)" if later else "own_position" }}, 0)), takes_part);
$$ for f in range(fours)
        let visible{{ f }} = vec4<u32>(
$$ for r in range(4 * f, 4 * f + 4)
            subgroupBroadcast(own_visible, {{ [r, rows - 1] | min }}u),
$$ endfor
        );
$$ if later
        let own_number{{ f }} = vec4<u32>(
$$ for r in range(4 * f, 4 * f + 4)
            subgroupBroadcast(u32(own_position), {{ [r, rows - 1] | min }}u),
$$ endfor
        );
$$ endif
$$ if window
        let oldest{{ f }} = max({{ "own_number" if later else "visible" }}{{ f }} + 1u, vec4<u32>({{ window }}u)) - {{ window }}u;
$$ endif
$$ endfor
{$ include "attention/attention_subgroup.wgsl" $}
$$ for f in range(fours)
        let sum_of_weights{{ f }} = subgroupAdd(weight{{ f }});
$$ endfor
        for (var i = 0u; i < {{ rows }}u; i++) {
            var found = top0[i & 3u];
            var found_weight = sum_of_weights0[i & 3u];
$$ for f in range(1, fours)
            found = select(found, top{{ f }}[i & 3u], i > {{ 4 * f - 1 }}u);
            found_weight = select(found_weight, sum_of_weights{{ f }}[i & 3u], i > {{ 4 * f - 1 }}u);
$$ endfor
            let taken = subgroupShuffle(select(0u, 1u, takes_part), i) == 1u && block * {{ rows }}u + i <= last_row && busy;
            let row_i = subgroupShuffle(row, i);
            let value_row = (subgroupShuffle(token, i) * p.key_heads + key_head) * p.value_steps;
            let own = select(LOWEST, subgroupShuffle({{ "own_top" if sinks else "own_score" }}, i), split == 0u);
            let higher = max(own, found);
            let keep = exp(own - higher);
            let add = exp(found - higher);
            let whole = select(0.0, {{ "subgroupShuffle(own_whole, i)" if sinks else "1.0" }}, split == 0u) * keep + found_weight * add;
$$ if sinks
            let share = subgroupShuffle(own_share, i);
$$ endif
$$ for w in range(wide)
            var sum{{ w }} = sum0_{{ w }};
$$ for r in range(1, rows)
            sum{{ w }} = select(sum{{ w }}, sum{{ r }}_{{ w }}, i == {{ r }}u);
$$ endfor
            if (taken && lane + {{ w }}u * LANES < p.value_steps) {
                let d = lane + {{ w }}u * LANES;
                let own_value = {{ loaded("v[value_row + d]", type) }};
                let out_sum = select(vec4<f32>(), own_value{{ " * share" if sinks }}, split == 0u) * keep + sum{{ w }} * add;
$$ if split
                let at = (row_i * p.splits + split) * (p.value_steps + 1u);
                if (d == 0u) {
                    partial[at] = vec4<f32>(higher, whole, 0.0, 0.0);
                }
                partial[at + 1u + d] = out_sum;
$$ else
                let out = out_sum / max(whole, 1.0);
                y[row_i * p.value_steps + d] = {{ storable("out", type) }};
$$ endif
            }
$$ endfor
        }
    }
}
