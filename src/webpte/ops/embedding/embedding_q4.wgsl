{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "choice.wgsl" $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, storable $}
{$ from "packed.wgsl" import fetched, scale_of, stored $}

var<storage> table: array<u32>;  // (V, E / 2) bytes, a code in each half
var<storage> scales: array<{{ stored(scale_type) }}>;  // (V, E / group)
var<storage> indices: array<i32>;
$$ if zero_type
var<storage> zeros: array<{{ stored(zero_type) }}>;
$$ endif
var<storage> y: {{ array_of(type) }};

{$ include loader $}

// Each invocation makes the values of a {{ "word, which are of one group" if words else "byte" }}.
$$ call per_thread()
    let row = choice(indices[i / p.row_steps], p.size);
    if (row < p.first || row - p.first >= p.rows) {
        return;  // in another part of the table
    }
    let step = i % p.row_steps;
    let at = (row - p.first) * p.row_steps + step;
$$ if words
    let word = table[at];
    let s = row * p.row_groups + step * 8u / p.group;
    let scale = {{ scale_of("scales", "s", scale_type) }};
    let zero = {{ fetched("zeros", "s", zero_type) if zero_type else "0.0" }};
    let low = (codes(word) - zero) * scale;
    let high = (codes(word >> 16u) - zero) * scale;
    y[2u * i] = {{ storable("low", type) }};
    y[2u * i + 1u] = {{ storable("high", type) }};
$$ else
    let pair = codes(table[at >> 2u] >> ((at & 3u) * 8u));
$$ for half in range(2)
    let s{{ half }} = row * p.row_groups + (step * 2u + {{ half }}u) / p.group;
    let zero{{ half }} = {{ fetched("zeros", "s" ~ half, zero_type) if zero_type else "0.0" }};
    let value{{ half }} = (pair.{{ "xy"[half] }} - zero{{ half }}) * {{ scale_of("scales", "s%d" % half, scale_type) }};
    y[2u * i + {{ half }}u] = {{ storable("value" ~ half, type) }};
$$ endfor
$$ endif
$$ endcall
