{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> cache: array<{{ cache }}>;
$$ if done
@group(1) @binding(2) var<storage, read_write> done: array<{{ cache }}>;
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
