{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "packed.wgsl" import fetched, stored $}
{$ from "walk.wgsl" import operand_positions $}

var<storage> x: array<{{ stored(source) }}>;
$$ if scale_type
var<storage> scales: array<{{ scale_type }}>;
$$ endif
$$ if zero_type
var<storage> zeros: array<{{ stored(zero_type) }}>;
$$ endif
var<storage> y: array<{{ type }}>;

// Four neighbours per invocation: a word, where codes are bytes. `permuted`: x has another order of dims.
$$ call per_thread("t")
    let end = min(t * 4u + 4u, p.count);
    for (var i = t * 4u; i < end; i++) {
$$ if scale_type
        let which = (i / p.inner) % p.scales;
        let scale = f32(scales[which]);
        let zero = {{ fetched("zeros", "which", zero_type) if zero_type else "0.0" }};
$$ else
        let scale = p.scale;
        let zero = p.zero;
$$ endif
{{ operand_positions(["x"], not permuted) }}
        y[i] = {{ type }}(({{ fetched("x", "xi", source) }} - zero) * scale);
    }
$$ endcall
