{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<u32>;  // (B, S, row) bytes
var<storage> cache: array<u32>;  // (B, capacity, row) bytes
var<storage> done: array<u32>;

// One invocation per word of the cache, which may have bytes of other positions too: those stay.
$$ call per_thread()
    let sequence = i / p.words;
    let first = (sequence * p.capacity + u32(live(p.start))) * p.row;
    let last = first + p.seq * p.row;
    let at = (first >> 2u) + (i % p.words);
    if (at * 4u < last) {
        var word = cache[at];
        for (var b = 0u; b < 4u; b++) {
            let place = at * 4u + b;
            if (place >= first && place < last) {
                let source = sequence * (p.seq * p.row) + (place - first);
                let code = extractBits(x[source >> 2u], (source & 3u) * 8u, 8u);
                word = insertBits(word, code, b * 8u, 8u);
            }
        }
        cache[at] = word;
    }
    if (i == 0u) {
        done[0] = 0u;
    }
$$ endcall
