{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "choice.wgsl" $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, storable $}
{$ from "packed.wgsl" import fetched, stored $}
{$ set wide = 4 if type.endswith("x4") else 1 $}
{$ set word_codes = 16 if codes == "2 bits" else 4 $}

var<storage> table: array<u32>;  // (V, E) codes, {{ word_codes }} to a word
var<storage> scales: array<{{ scale_type }}>;  // (V, E / group)
var<storage> indices: array<i32>;
$$ if zero_type
var<storage> zeros: array<{{ stored(zero_type) }}>;
$$ endif
var<storage> y: {{ array_of(type) }};

fn code(at: u32) -> f32 {
$$ if codes == "2 bits"
    return f32(extractBits(table[at >> 4u], (at & 15u) * 2u, 2u)) - 2.0;
$$ else
    return {{ fetched("table", "at", codes) }};
$$ endif
}

// Each invocation makes {{ "four neighbours, which are of one group" if wide == 4 else "one value" }}.
$$ call per_thread()
    let steps = p.width / {{ wide }}u;
    let row = choice(indices[i / steps], p.size);
    if (row < p.first || row - p.first >= p.rows) {
        return;  // in another part of the table
    }
    let column = (i % steps) * {{ wide }}u;
    let at = (row - p.first) * p.width + column;
    let s = row * p.row_groups + column / p.group;
    let scale = f32(scales[s]);
    let zero = {{ fetched("zeros", "s", zero_type) if zero_type else "0.0" }};
$$ if wide == 4
    let value = (vec4<f32>(code(at), code(at + 1u), code(at + 2u), code(at + 3u)) - zero) * scale;
$$ else
    let value = (code(at) - zero) * scale;
$$ endif
    y[i] = {{ storable("value", type) }};
$$ endcall
