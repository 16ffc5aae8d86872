{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ include "attention/rotate.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ from "attention/rotate.wgsl" import angles, rotated $}

$$ if rotary
var<storage> q: {{ array_of(type) }};
$$ endif
var<storage> k: {{ array_of(type) }};
var<storage> v: {{ array_of(type) }};
$$ if rotary
var<storage> cosine: {{ array_of(table) }};
var<storage> sine: {{ array_of(table) }};
$$ endif
var<storage> keys: {{ array_of(cache) }};
var<storage> values: {{ array_of(cache) }};
$$ if rotary
var<storage> queries: {{ array_of(type) }};
$$ endif

// One invocation per load of keys, then values, then queries: (B, S, heads of all, D / 4).
$$ call per_thread()
    let d = i % p.key_steps;
    let head = i / p.key_steps % (2u * p.key_heads + p.heads);
    let token = i / (p.key_steps * (2u * p.key_heads + p.heads));
    let row = (token / p.seq) * p.capacity + u32(live(p.start)) + token % p.seq;  // in the caches
{{ angles(rotary, table, "u32(live(p.table_row)) + token % p.seq") }}
    if (head < p.key_heads) {
        let key = {{ rotated(rotary, "k", "(token * p.key_heads + head)", type) }};
        keys[(row * p.key_heads + head) * p.key_steps + d] = {{ storable("key", cache) }};
    } else if (head < 2u * p.key_heads) {
        let value = {{ loaded("v[(token * p.key_heads + head - p.key_heads) * p.key_steps + d]", type) }};
        values[(row * p.key_heads + head - p.key_heads) * p.key_steps + d] = {{ storable("value", cache) }};
    }
$$ if rotary
    else {
        let at = token * p.heads + head - 2u * p.key_heads;
        let query = {{ rotated(rotary, "q", "at", type) }};
        queries[at * p.key_steps + d] = {{ storable("query", type) }};
    }
$$ endif
$$ endcall
