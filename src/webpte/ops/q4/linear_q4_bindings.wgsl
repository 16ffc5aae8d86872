{# The bindings of every kernel of a 4-bit or 8-bit layer, and the store of its results. Set x_type, w_type, s_type and, for
   offsets, row_groups: the groups of a row of the weight. #}
{$ from "packed.wgsl" import stored $}
var<storage> x: array<{{ x_type }}>;  // (M, K)
$$ for v in range(weights)
// {{ "(N, K / 2) bytes, a code in each half" if bits == 4 else "(N, K) bytes" }}
var<storage> weight{{ v }}: array<{{ w_type }}>;
var<storage> scales{{ v }}: array<{{ stored(s_type) }}>;  // (K / group, at least N)
$$ endfor
$$ if biased
var<storage> bias: array<{{ bias_type }}>;  // (at least N)
$$ endif
$$ if norm_type is defined and norm_type
var<storage> norm: array<{{ norm_type }}>;  // (K)
$$ endif
$$ if offset
// What is added to the weights of a group: of all weights, one after the other, (K / group, N) signed bytes, and then a
// scale for each column of all weights.
var<storage> offsets: array<u32>;
$$ endif
$$ for o in range(outs)
var<storage> y{{ o }}: array<{{ out_type }}>;
$$ endfor

$$ if offset
$$ if bits == 4
{$ include "bytes.wgsl" $}

$$ endif
// The number of the byte for column n of the whole weight v.
fn offset_place(v: u32, g: u32, n: u32) -> u32 {
    return (v * {{ row_groups }} + g) * p.out_columns + n;
}

// The codes for columns n, n + 1, ... of one word, four at most.
fn offset_codes(v: u32, g: u32, n: u32) -> vec4<f32> {
    let at = offset_place(v, g, n);
    return vec4<f32>(signed_bytes(offsets[at / 4u] >> ((at % 4u) * 8u)));
}

fn offset_scale(v: u32, n: u32) -> f32 {
    return bitcast<f32>(offsets[offset_place({{ weights }}u, 0u, 0u) / 4u + v * p.out_columns + n]);
}

$$ endif
{$ set products = weights $}
{$ include "matmul/epilogue.wgsl" $}

// Store the sums of each weight in a row, for column n of the whole weight; the outputs have the columns one after the
// other.
fn put(row: u32, n: u32{$ for v in range(weights) $}, sum{{ v }}: f32{$ endfor $}) {
$$ if biased
    let value = epilogue(sum0 + f32(bias[n]), 0u, row, n);
$$ else
    let value = epilogue({$ for v in range(weights) $}sum{{ v }}, {$ endfor $}0u, row, n);
$$ endif
$$ if outs == 1
    y0[row * p.out_columns + n] = value;
$$ else
    if (n < p.second) {
        y0[row * p.second + n] = value;
    } else if (n < p.third) {
        y1[row * (p.third - p.second) + n - p.second] = value;
$$ if outs == 3
    } else {
        y2[row * (p.out_columns - p.third) + n - p.third] = value;
$$ endif
    }
$$ endif
}
