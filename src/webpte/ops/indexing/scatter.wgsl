{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var at = u32(live(p.start)) * p.step;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        at += (rest % size) * p.strides[k >> 2u][k & 3u];
        rest /= size;
    }
    y[at] = x[i];
$$ endcall
