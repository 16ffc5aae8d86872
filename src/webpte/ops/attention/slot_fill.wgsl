{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ include "attention/rotate.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ from "attention/rotate.wgsl" import angles, rotated $}
{$ set norm_eps = norm_eps | default("") $}
{$ set normed = ["q", "k"] if queries else ["k"] $}
{$ set query_norm, key_norm = ("p.norms", "p.table_loads + p.norms") if norm_eps else ("", "") $}
{# The row of the tables: with `angle_row`, they have one for each row of the batch from there on. #}
{$ set angle = "row + " ~ angle_row ~ "u" if angle_row is defined else "u32(position)" $}
{# Load d of the key of a head. #}
{$ macro rotated_key() -$}
{{ rotated(rotary, "k", "(row * p.key_heads + head)", type, key_norm) }}
{$- endmacro $}
{$ macro own_key() -$}
{{ "(" ~ rotated_key() ~ ") * factor" if norm_eps else rotated_key() }}
{$- endmacro $}

var<storage> k: {{ array_of(type) }};
var<storage> v: {{ array_of(type) }};
$$ if rotary
var<storage> cosine: {{ array_of(table) }};
$$ endif
var<storage> slot_mapping: array<{{ "vec4<i32>" if later is defined else "vec2<i32>" }}>;  // slot and position of each row
$$ if queries
var<storage> q: {{ array_of(type) }};
$$ endif
var<storage> keys: {{ array_of(cache) }};
var<storage> values: {{ array_of(cache) }};
$$ if queries
var<storage> queries: {{ array_of(type) }};
$$ endif

$$ if cache == "i8x4"
{$ include "attention/cache_codes.wgsl" $}

$$ endif
{$ include "attention/head_norms.wgsl" $}
// One invocation per load of keys, then values, then queries: (R, heads of all, D / 4).
$$ call per_thread()
    let d = i % p.key_steps;
    let head = i / p.key_steps % (2u * p.key_heads + p.heads);
    let row = i / (p.key_steps * (2u * p.key_heads + p.heads));
    let place = slot_mapping[row];
    let position = place.y + live(p.start);
    if (u32(place.x) >= p.slots || u32(position) >= p.capacity) {
        return;  // an idle row: as u32, negative numbers exceed the bounds too
    }
    let target_row = u32(place.x) * p.capacity + u32(position);
{{ angles(rotary, table, angle, "cosine[p.table_loads + entry]") }}
    if (head < p.key_heads) {
$$ if norm_eps
        let factor = key_factor(row * p.key_heads + head);
$$ endif
        let key = {{ own_key() }};
$$ if cache == "i8x4"
        var top = 0.0;
        for (var step = 0u; step < p.key_steps; step++) {
            let d = step;
{{ angles(rotary, table, angle, "cosine[p.table_loads + entry]") }}
            top = max(top, largest({{ own_key() }}));
        }
        let stored = (target_row * p.key_heads + head) * (p.key_steps + 1u);
        keys[stored + d] = codes(key, top);
        if (d == 0u) {
            keys[stored + p.key_steps] = bitcast<u32>(top);
        }
$$ else
        keys[(target_row * p.key_heads + head) * p.key_steps + d] = {{ storable("key", cache) }};
$$ endif
    } else if (head < 2u * p.key_heads) {
        let at = head - p.key_heads;
        let value = {{ loaded("v[(row * p.key_heads + at) * p.key_steps + d]", type) }};
$$ if cache == "i8x4"
        var top = 0.0;
        for (var step = 0u; step < p.key_steps; step++) {
            top = max(top, largest({{ loaded("v[(row * p.key_heads + at) * p.key_steps + step]", type) }}));
        }
        let stored = (target_row * p.key_heads + at) * (p.key_steps + 1u);
        values[stored + d] = codes(value, top);
        if (d == 0u) {
            values[stored + p.key_steps] = bitcast<u32>(top);
        }
$$ else
        values[(target_row * p.key_heads + at) * p.key_steps + d] = {{ storable("value", cache) }};
$$ endif
    }
$$ if queries
    else {
        let at = row * p.heads + head - 2u * p.key_heads;
$$ if norm_eps
        let query = ({{ rotated(rotary, "q", "at", type, query_norm) }}) * query_factor(at);
$$ else
        let query = {{ rotated(rotary, "q", "at", type) }};
$$ endif
        queries[at * p.key_steps + d] = {{ storable("query", type) }};
    }
$$ endif
$$ endcall
