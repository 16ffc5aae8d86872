{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ include "attention/rotate.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ from "attention/rotate.wgsl" import angles, rotated $}
{$ set score = {1: "f32", 2: "vec2<f32>", 3: "vec3<f32>", 4: "vec4<f32>"}[heads] $}
{$ set each = [""] if heads == 1 else [".x", ".y", ".z", ".w"][:heads] $}
{$ set tiles = lanes // parts $}
{$ set window, cap, norm_eps = window | default(0), cap | default(""), norm_eps | default("") $}
{$ set sinks = sinks | default("") $}
{$ set normed = ["q", "k"] $}
{$ set query_norm, key_norm = ("p.norms", "p.table_loads + p.norms") if norm_eps else ("", "") $}
{# The variables that attention_subgroup.wgsl reads: #}
{$ set rows = heads $}
{$ set causal = false $}
{$ set own_query = "" $}
{$ set pieces = (key_steps + lanes - 1) // lanes $}
{# The token's own key and value are added after the cached ones. `new_tokens`: they are `cached` by this dispatch,
   or `before`, by another one. With `slots`, `slot_mapping` has the slot and position of each row of the queries. With
   `later`, it also has the positions after its own that a row sees; keys of rows that are the only ones of their slots
   are cached here, and they see none. #}
{$ set place = "vec4<i32>" if later is defined else "vec2<i32>" $}
{$ set later = later is defined and new_tokens == "before" $}
{$ set key_end = "reached" if later else "cached" $}
{$ set codes = new_tokens == "cached" and cache == "i8x4" $}
{# With `angle_row`, rotary tables have a row for each row of the batch from there on. #}
{$ set of_batch = "min(batch, p.rows - 1u) + " ~ angle_row ~ "u" if angle_row is defined else "cached" $}
{$ set position = of_batch if slots else "u32(live(p.table_row))" $}
{# A number that the end needs: with `parts` in shared memory, because registers are scarce while it goes over keys. #}
{$ set kept = ["first_head", "last_head", "row_of_keys", "split", "busy"] $}
{$ macro at_end(name) -$}
{{ "kept[" ~ kept.index(name) ~ "]" if parts > 1 else name }}
{$- endmacro $}
{$ set sine = "cosine[p.table_loads + entry]" if slots else "sine[entry]" $}
{$ macro rotated_key() -$}
{{ rotated(rotary, "k", "row_of_keys", type, key_norm) }}
{$- endmacro $}
{$ macro own_key() -$}
{{ "(" ~ rotated_key() ~ ") * factors[HEADS]" if norm_eps else rotated_key() }}
{$- endmacro $}

var<storage> q: {{ array_of(type) }};
$$ if new_tokens
var<storage> k: {{ array_of(type) }};
var<storage> v: {{ array_of(type) }};
$$ endif
$$ if rotary
var<storage> cosine: {{ array_of(table) }};
$$ if not slots
var<storage> sine: {{ array_of(table) }};
$$ endif
$$ endif
$$ if slots
var<storage> slot_mapping: array<{{ place }}>;  // slot and position of each row
$$ endif
var<storage> keys: {{ array_of(cache) }};
var<storage> values: {{ array_of(cache) }};
$$ if split
var<storage> partial: array<vec4<f32>>;
$$ else
var<storage> y: {{ array_of(type) }};
$$ endif

const LOWEST = -3.4e38;
// Also uniforms: divisions are cheap by constants, and loops to constants are unrolled.
const KEY_STEPS = {{ key_steps }}u;
const VALUE_STEPS = {{ value_steps }}u;
const LANES = {{ lanes }}u;
const TILE = {{ tile }}u;  // keys that an invocation scores at a time
const TILES = {{ tiles }}u;  // of such at a time
const HEADS = {{ heads }}u;  // query heads that read the same keys
const COLUMNS = {{ columns }}u;  // invocations that share a row of values
const SLICES = {{ slices }}u;  // and how often over different keys

var<workgroup> queries: array<vec4<f32>, {{ heads * key_steps }}>;
var<workgroup> slice_tops: array<{{ score }}, {{ slices }}>;
var<workgroup> slice_weights: array<{{ score }}, {{ slices }}>;
var<workgroup> slice_sums: array<vec4<f32>, {{ slices * heads * columns * wide }}>;
$$ if parts > 1
var<workgroup> kept: array<u32, {{ kept | length }}>;
{# One more than there are parts, or keys, keeps the sums and scores of neighbours from beginning at the same bank. #}
var<workgroup> products: array<array<f32, {{ parts + 1 }}>, {{ tile * tiles }}>;
var<workgroup> scores: array<array<f32, {{ tile + 1 if tile > 1 else 1 }}>, {{ tiles }}>;
$$ elif not subgroup
var<workgroup> weights: array<{{ score }}, {{ tiles * tile }}>;  // of the keys, relative to the top of their tile
var<workgroup> tops: array<{{ score }}, {{ tiles }}>;
$$ endif
$$ if norm_eps
var<workgroup> factors: array<f32, {{ heads + 1 }}>;  // of the query heads, then of the key
$$ endif
$$ if new_tokens
var<workgroup> own_products: array<f32, {{ heads * key_steps }}>;
var<workgroup> own_scores: array<f32, {{ heads }}>;
$$ endif
$$ if codes
var<workgroup> key_tops: array<f32, {{ key_steps }}>;  // the largest element of each load of the token's own key
var<workgroup> value_tops: array<f32, {{ value_steps }}>;
$$ endif

{$ include "attention/cache_loads.wgsl" $}
$$ if codes
{$ include "attention/cache_codes.wgsl" $}
$$ endif

$$ if parts > 1
{$ include "attention/plus_product.wgsl" $}

$$ endif
{$ include "attention/capped_scores.wgsl" $}
{$ include "attention/head_norms.wgsl" $}
{$ include "attention/head_sinks.wgsl" $}
// Attention of one token. A workgroup has some of the query heads of a key head, and all or part of its keys. In each
// round it scores as many keys as fit in shared memory, and adds up their values. Scores and sums are relative to the
// highest score so far.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
$$ if subgroup
    @builtin(subgroup_invocation_id) lane: u32,
) {
$$ else
    @builtin(local_invocation_id) local: vec3<u32>,  // its index would be computed at every use by some drivers
) {
    let lane = local.x;
$$ endif
    let job = id.x + id.y * groups.x;  // (B, key head, part of its query heads, split)
    let part = job / p.splits;
    let split = job - part * p.splits;
    let row_of_keys = part / p.head_parts;  // (B, key head)
    let head_part = part - row_of_keys * p.head_parts;
    let batch = row_of_keys / p.key_heads;
    let key_head = row_of_keys - batch * p.key_heads;
    let first_head = row_of_keys * p.group + head_part * HEADS;
    let last_head = row_of_keys * p.group + p.group - 1u;
$$ if slots
    let place = slot_mapping[min(batch, p.rows - 1u)];
    let position = place.y + live(p.start);
    let known = u32(place.x) < p.slots && u32(position) < p.capacity;  // negative numbers are large ones
    let busy = job * LANES < p.threads && known;  // an idle row belongs to no slot
    let cached = select(0u, u32(position), known);
    let slot = select(0u, u32(place.x), known);
$$ if later
    let reached = select(cached, min(cached + u32(place.z) + 1u, p.capacity), known && place.z > 0);
$$ endif
$$ else
    let busy = job * LANES < p.threads;
    let cached = u32(live(p.start)) + p.keys;
    let slot = batch;
$$ endif
    let first = slot * p.batch_rows + key_head * p.head_rows;  // row of the first key

$$ if parts > 1
    if (lane == 0u) {
$$ for name in kept
        kept[{{ loop.index0 }}] = {{ "select(0u, 1u, busy)" if name == "busy" else name }};
$$ endfor
    }
$$ endif
$$ if norm_eps
    for (var h = lane; h <= HEADS; h += LANES) {
        if (h < HEADS) {
            factors[h] = query_factor(min(first_head + h, last_head));
        } else {
            factors[h] = key_factor(row_of_keys);
        }
    }
    workgroupBarrier();
$$ endif
    for (var i = lane; i < HEADS * p.key_steps; i += LANES) {
        let d = i % KEY_STEPS;
        let row = min(first_head + i / KEY_STEPS, last_head);
{{ angles(rotary, table, position, sine) }}
        let query = ({{ rotated(rotary, "q", "row", type, query_norm) }}){{ " * factors[i / KEY_STEPS]" if norm_eps }} * p.scale;
        queries[i] = query;
$$ if new_tokens
        let own_key = {{ own_key() }};
        own_products[i] = dot(query, own_key);
$$ endif
$$ if codes
        key_tops[d] = largest(own_key);
$$ elif new_tokens == "cached"
        if (busy && split + head_part == 0u && i < p.key_steps) {
            keys[(first + cached * p.key_rows) * p.key_steps + d] = {{ storable("own_key", cache) }};
        }
$$ endif
    }
$$ if codes
    for (var d = lane; d < VALUE_STEPS; d += LANES) {
        value_tops[d] = largest({{ loaded("v[row_of_keys * p.value_steps + d]", type) }});
    }
$$ elif new_tokens == "cached"
    for (var d = lane; d < p.value_steps && busy && split + head_part == 0u; d += LANES) {
        let own_value = {{ loaded("v[row_of_keys * p.value_steps + d]", type) }};
        values[(first + cached * p.key_rows) * p.value_steps + d] = {{ storable("own_value", cache) }};
    }
$$ endif
    workgroupBarrier();
$$ if codes
    if (busy && split + head_part == 0u) {
        var key_top = 0.0;
        for (var d = 0u; d < KEY_STEPS; d++) {
            key_top = max(key_top, key_tops[d]);
        }
        var value_top = 0.0;
        for (var d = 0u; d < VALUE_STEPS; d++) {
            value_top = max(value_top, value_tops[d]);
        }
        let key_at = (first + cached * p.key_rows) * (KEY_STEPS + 1u);
        let value_at = (first + cached * p.key_rows) * (VALUE_STEPS + 1u);
        for (var d = lane; d < KEY_STEPS; d += LANES) {
{{ angles(rotary, table, position, sine) }}
            keys[key_at + d] = codes({{ own_key() }}, key_top);
        }
        for (var d = lane; d < VALUE_STEPS; d += LANES) {
            values[value_at + d] = codes({{ loaded("v[row_of_keys * p.value_steps + d]", type) }}, value_top);
        }
        if (lane == 0u) {
            keys[key_at + KEY_STEPS] = bitcast<u32>(key_top);
            values[value_at + VALUE_STEPS] = bitcast<u32>(value_top);
        }
    }
$$ endif
$$ if new_tokens
    if (lane < HEADS) {
        var own_score = 0.0;
        for (var d = 0u; d < p.key_steps; d++) {
            own_score += own_products[lane * p.key_steps + d];
        }
        own_scores[lane] = {{ "capped_score(own_score)" if cap else "own_score" }};
    }
$$ endif

    let slice = lane / COLUMNS;
    let column = lane % COLUMNS;
    // Keys go to the splits in turn: the split of a key does not depend on the number of keys.
    let step = {{ "TILE * LANES" if subgroup else "TILES * TILE" }};
$$ if not window
    let begin = split * step;
$$ endif
$$ if short
    // Few keys go to the first split alone, so that a row has the bits that it has without splits.
    let few = cached < {{ short }}u;
    let stride = select(p.splits, 1u, few) * step;
    let end = select({{ key_end }}, 0u, few && split > 0u);
$$ else
    let stride = p.splits * step;
    let end = {{ key_end }};
$$ endif
$$ if window
    // Steps begin where they begin without a window: the first of this split that has a visible key.
    let oldest = max(cached + 1u, {{ window }}u) - {{ window }}u;
    let begin = split * step + (oldest + stride - (split + 1u) * step) / stride * stride;
$$ endif
$$ if subgroup
$$ for piece in range(pieces)
    let own{{ piece }} = min({{ piece }}u * LANES + lane, KEY_STEPS - 1u);
    let mine{{ piece }} = {{ piece }}u * LANES + lane < KEY_STEPS;
$$ for h in range(heads)
    let q{{ h }}_{{ piece }} = select(vec4<f32>(), queries[{{ h }}u * KEY_STEPS + own{{ piece }}], mine{{ piece }});
$$ endfor
$$ endfor
{$ include "attention/attention_subgroup.wgsl" $}
    let top = top0;
    let weight = subgroupAdd(weight0);
$$ else
{$ include "attention/attention_shared.wgsl" $}
$$ endif

    // One row for each query head, of all slices and of the token's own key.
    if (column == 0u) {
        slice_tops[slice] = top;
        slice_weights[slice] = weight;
    }
$$ if parts > 1
$$ for h in range(heads)
$$ for w in range(wide)
    let at{{ h }}_{{ w }} = ((slice * HEADS + {{ h }}u) * {{ wide }}u + {{ w }}u) * COLUMNS + column;
    slice_sums[at{{ h }}_{{ w }}] = sum{{ h }}_{{ w }};
$$ endfor
$$ endfor
$$ else
    for (var h = 0u; h < min(HEADS, last_head + 1u - first_head); h++) {
$$ for w in range(wide)
        var sum{{ w }} = sum0_{{ w }};
$$ for h in range(1, heads)
        sum{{ w }} = select(sum{{ w }}, sum{{ h }}_{{ w }}, h == {{ h }}u);
$$ endfor
        slice_sums[((slice * HEADS + h) * {{ wide }}u + {{ w }}u) * COLUMNS + column] = sum{{ w }};
$$ endfor
    }
$$ endif
    workgroupBarrier();
    for (var i = lane; i < HEADS * p.value_steps; i += LANES) {
        let h = i / VALUE_STEPS;
        let d = i % VALUE_STEPS;
        var highest = LOWEST;
        var whole = 0.0;
        var sum = vec4<f32>();
$$ if new_tokens
        if ({{ at_end("split") }} == 0u) {
            highest = own_scores[h];
            whole = 1.0;
            sum = {{ loaded("v[" ~ at_end("row_of_keys") ~ " * p.value_steps + d]", type) }};
$$ if sinks
            let sink = sink_of(({{ at_end("first_head") }} + h) % p.heads);
            highest = max(own_scores[h], sink);
            let share = exp(own_scores[h] - highest);
            whole = share + exp(sink - highest);
            sum *= share;
$$ endif
        }
$$ endif
        for (var s = 0u; s < p.slices; s++) {
            let found = slice_tops[s]{{ "[h]" if heads > 1 }};
            let higher = max(highest, found);
            let keep = exp(highest - higher);
            let add = exp(found - higher);
            highest = higher;
            whole = whole * keep + slice_weights[s]{{ "[h]" if heads > 1 }} * add;
            let sum_at = (s * HEADS + h) * {{ wide }}u * COLUMNS + d;
            sum = sum * keep + slice_sums[sum_at] * add;
        }
        if ({{ at_end("busy") }}{{ " == 1u" if parts > 1 }} && {{ at_end("first_head") }} + h <= {{ at_end("last_head") }}) {
$$ if split
            let at = (({{ at_end("first_head") }} + h) * p.splits + {{ at_end("split") }}) * (p.value_steps + 1u);
            if (d == 0u) {
                partial[at] = vec4<f32>(highest, whole, 0.0, 0.0);
            }
            partial[at + 1u + d] = sum;
$$ else
            let out = sum / max(whole, 1.0);
            y[({{ at_end("first_head") }} + h) * p.value_steps + d] = {{ storable("out", type) }};
$$ endif
        }
    }
}
