{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> x: array<u32>;
@group(1) @binding(1) var<storage, read_write> y: array<u32>;

// Four bytes to a word: each invocation owns a word of the output, and fetches its bytes one by one.
$$ call per_thread("t")
    let end = min(t * 4u + 4u, p.count);
    var word = 0u;
    for (var i = t * 4u; i < end; i++) {
        var source = u32(live(p.start)) * p.step;
        var rest = i;
        for (var d = p.rank; d > 0u; d--) {
            let k = d - 1u;
            let size = p.dims[k >> 2u][k & 3u];
            source += (rest % size) * p.strides[k >> 2u][k & 3u];
            rest /= size;
        }
        word |= extractBits(x[source >> 2u], (source & 3u) * 8u, 8u) << ((i & 3u) * 8u);
    }
    y[t] = word;
$$ endcall
