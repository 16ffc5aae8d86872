{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

var<storage> x: array<u32>;
var<storage> y: array<u32>;

// Four bytes to a word: each invocation owns a word of the output, and fetches its bytes one by one.
$$ call per_thread("t")
    let end = min(t * 4u + 4u, p.count);
    var word = 0u;
    for (var i = t * 4u; i < end; i++) {
        var source = u32(live(p.start)) * p.step;
{{ walk({"source": "strides"}) }}
        word |= extractBits(x[source >> 2u], (source & 3u) * 8u, 8u) << ((i & 3u) * 8u);
    }
    y[t] = word;
$$ endcall
