{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
    var inside = true;
$$ call walk({})
        // A position before the first wraps around to a huge one: one comparison tests both ends.
        let moved = at + p.shifts[k >> 2u][k & 3u];
        inside = inside && moved < p.sizes[k >> 2u][k & 3u];
        source += moved * p.strides[k >> 2u][k & 3u];
$$ endcall
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
