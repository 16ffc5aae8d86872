{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

var<storage> x: array<{{ word }}>;
var<storage> y: array<{{ word }}>;

{# Declare the position `source` of element i in the input, and whether it is `inside`. #}
{$ macro position() $}
    var source = 0u;
    var inside = true;
$$ call walk({})
        // A position before the first wraps around to a huge one: one comparison tests both ends.
        let moved = at + p.shifts[k >> 2u][k & 3u];
        inside = inside && moved < p.sizes[k >> 2u][k & 3u];
        source += moved * p.strides[k >> 2u][k & 3u];
$$ endcall
{$ endmacro $}
$$ if packed
// Four bytes to a word: each invocation owns a word of the output, and fetches its bytes one by one.
$$ call per_thread("t")
    let end = min(t * 4u + 4u, p.count);
    var word = 0u;
    for (var i = t * 4u; i < end; i++) {
{{ position() }}
        var bits = p.value;
        if (inside) {
            bits = extractBits(x[source >> 2u], (source & 3u) * 8u, 8u);
        }
        word |= bits << ((i & 3u) * 8u);
    }
    y[t] = word;
$$ endcall
$$ else
$$ call per_thread()
{{ position() }}
    if (inside) {
        y[i] = x[source];
    } else {
$$ if word == "f16"
        y[i] = f16(unpack2x16float(p.value).x);
$$ else
        y[i] = p.value;
$$ endif
    }
$$ endcall
$$ endif
