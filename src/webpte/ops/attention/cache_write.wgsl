{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ type }}>;
var<storage> cache: array<{{ cache }}>;
$$ if done
var<storage> done: array<{{ cache }}>;
$$ endif

$$ call per_thread()
    let token = i / p.row;
    let position = u32(live(p.start)) + token % p.seq;
    cache[((token / p.seq) * p.capacity + position) * p.row + i % p.row] = {{ cache }}(x[i]);
$$ if done
    if (i == 0u) {
        done[0] = {{ cache }}(0.0);
    }
$$ endif
$$ endcall
