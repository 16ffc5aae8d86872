{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        let at = rest % size + p.shifts[k >> 2u][k & 3u];
        rest /= size;
        source += (at % p.sizes[k >> 2u][k & 3u]) * p.strides[k >> 2u][k & 3u];
    }
    y[i] = x[source];
$$ endcall
