{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ word }}>;
var<storage> y: array<{{ word }}>;

$$ if packed
// Four bytes to a word: each invocation owns a word of the output, and adds the bytes of this input. The first input
// writes zeros where the others will be.
$$ call per_thread("t")
    let end = min(t * 4u + 4u, p.count);
    var word = {{ "0u" if first else "y[t]" }};
    for (var i = t * 4u; i < end; i++) {
        let at = i % p.out_width - p.offset;  // before the stripe it wraps around
        if (at < p.width) {
            let source = (i / p.out_width) * p.width + at;
            word |= extractBits(x[source >> 2u], (source & 3u) * 8u, 8u) << ((i & 3u) * 8u);
        }
    }
    y[t] = word;
$$ endcall
$$ else
$$ call per_thread()
    y[(i / p.width) * p.out_width + p.offset + i % p.width] = x[i];
$$ endcall
$$ endif
