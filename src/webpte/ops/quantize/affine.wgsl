{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ from "packed.wgsl" import fetched, stored $}
{$ set bytes = target in ("i8", "u8") $}

var<storage> x: array<{{ stored(source) }}>;
var<storage> scales: array<{{ scale_type }}>;
$$ if zero_type
var<storage> zeros: array<{{ stored(zero_type) }}>;
$$ endif
var<storage> y: array<{{ stored(target) }}>;
// Four neighbours per invocation: a word, where the results are bytes.
$$ call per_thread("t")
    let end = min(t * 4u + 4u, p.count);
$$ if bytes
    var word = 0u;
$$ endif
    for (var i = t * 4u; i < end; i++) {
{{ operand_positions(["s"], flat) }}
        let scale = f32(scales[si]);
        let zero = {{ fetched("zeros", "si", zero_type) if zero_type else "0.0" }};
$$ if mode == "dequantize"
        let value = ({{ fetched("x", "i", source) }} - zero) * scale;
$$ else
        // Multiplied by the reciprocal, as torchao does: a quotient may round to another neighbour.
        let code = clamp(round({{ fetched("x", "i", source) }} * (1.0 / scale)) + zero, p.lowest, p.highest);
        let value = {{ "code" if mode == "quantize" else "(code - zero) * scale" }};
$$ endif
$$ if bytes
        word |= (u32(i32(value)) & 255u) << ((i & 3u) * 8u);
$$ else
        y[i] = {{ target }}(value);
$$ endif
    }
$$ if bytes
    y[t] = word;
$$ endif
$$ endcall
