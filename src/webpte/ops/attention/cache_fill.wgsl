{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ include "attention/rotate.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ from "attention/rotate.wgsl" import angles, rotated $}
{$ set first = 1 if rotary else 0 $}
{$ set first_write = 5 if rotary else 2 $}

$$ if rotary
@group(1) @binding(0) var<storage, read> q: {{ array_of(type) }};
$$ endif
@group(1) @binding({{ first }}) var<storage, read> k: {{ array_of(type) }};
@group(1) @binding({{ first + 1 }}) var<storage, read> v: {{ array_of(type) }};
$$ if rotary
@group(1) @binding(3) var<storage, read> cosine: {{ array_of(table) }};
@group(1) @binding(4) var<storage, read> sine: {{ array_of(table) }};
$$ endif
@group(1) @binding({{ first_write }}) var<storage, read_write> keys: {{ array_of(cache) }};
@group(1) @binding({{ first_write + 1 }}) var<storage, read_write> values: {{ array_of(cache) }};
$$ if rotary
@group(1) @binding(7) var<storage, read_write> queries: {{ array_of(type) }};
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
