{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ from "packed.wgsl" import fetched, stored $}
{$ from "walk.wgsl" import operand_positions $}
{$ set bytes = target in ("i8", "u8") $}

var<storage> x: array<{{ type }}>;
$$ if scale_type
var<storage> scales: array<{{ scale_type }}>;
var<storage> zeros: array<{{ stored(zero_type) }}>;
$$ endif
var<storage> y: array<{{ stored(target) }}>;
// The code of element i of the result; `permuted`: x has another order of dims.
fn code(i: u32) -> i32 {
{{ operand_positions(["x"], not permuted) }}
$$ if scale_type
    let which = (i / p.inner) % p.scales;
    let inverse = 1.0 / f32(scales[which]);
    let zero = {{ fetched("zeros", "which", zero_type) }};
$$ else
    let inverse = p.inverse;
    let zero = p.zero;
$$ endif
    // Multiplied by the inverse, as PyTorch does: a quotient may round to another neighbour.
    let scaled = f32(x[xi]) * inverse;
    let moved = {{ "round(scaled + zero)" if early else "round(scaled) + zero" }};
    return i32(clamp(moved, p.lowest, p.highest));
}

// Four neighbours per invocation: a word, where the results are bytes.
$$ call per_thread("t")
    let first = t * 4u;
    let count = min(p.count - first, 4u);
$$ if bytes
    var codes = vec4<i32>();
    for (var k = 0u; k < count; k++) {
        codes[k] = code(first + k);
    }
    y[t] = word_of(codes, count);
$$ else
    for (var k = 0u; k < count; k++) {
        y[first + k] = code(first + k);
    }
$$ endif
$$ endcall
