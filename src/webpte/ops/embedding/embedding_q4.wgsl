{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "choice.wgsl" $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, storable $}
{$ from "packed.wgsl" import fetched, stored $}
{$ set shifts = [4, 0, 12, 8, 20, 16, 28, 24] if high_first else [0, 4, 8, 12, 16, 20, 24, 28] $}

var<storage> codes: array<u32>;  // (V, E / 2) bytes, a code in each half
var<storage> scales: array<{{ scale_type }}>;  // (V, E / group)
var<storage> indices: array<i32>;
$$ if zero_type
var<storage> zeros: array<{{ stored(zero_type) }}>;
$$ endif
var<storage> y: {{ array_of(type) }};

// Each invocation makes the values of a {{ "word, which are of one group" if words else "byte" }}.
$$ call per_thread()
    let row = choice(indices[i / p.row_steps], p.size);
    if (row < p.first || row - p.first >= p.rows) {
        return;  // in another part of the table
    }
    let step = i % p.row_steps;
    let at = (row - p.first) * p.row_steps + step;
$$ if words
    let word = vec4<u32>(codes[at]);
    let s = row * p.row_groups + step * 8u / p.group;
    let scale = f32(scales[s]);
    let zero = 8.0 + {{ fetched("zeros", "s", zero_type) if zero_type else "0.0" }};
    let low = (vec4<f32>((word >> vec4<u32>({{ shifts[:4] | join("u, ") }}u)) & vec4<u32>(15u)) - zero) * scale;
    let high = (vec4<f32>((word >> vec4<u32>({{ shifts[4:] | join("u, ") }}u)) & vec4<u32>(15u)) - zero) * scale;
    y[2u * i] = {{ storable("low", type) }};
    y[2u * i + 1u] = {{ storable("high", type) }};
$$ else
    let pair = extractBits(codes[at >> 2u], (at & 3u) * 8u, 8u);
$$ for half in range(2)
    let s{{ half }} = row * p.row_groups + (step * 2u + {{ half }}u) / p.group;
    let zero{{ half }} = 8.0 + {{ fetched("zeros", "s" ~ half, zero_type) if zero_type else "0.0" }};
    let value{{ half }} = (f32(extractBits(pair, {{ shifts[half] }}u, 4u)) - zero{{ half }}) * f32(scales[s{{ half }}]);
    y[2u * i + {{ half }}u] = {{ storable("value" ~ half, type) }};
$$ endfor
$$ endif
$$ endcall
